// Package traces measures what a verdict from a folder of PyTorch traces takes: beside
// HolisticTraceAnalysis on the same folders, and of one trace of half a gigabyte.
package traces
