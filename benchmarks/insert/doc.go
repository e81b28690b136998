// Package insert measures the way from segment files into the stores against the
// tools that people use for it, both sides in one run on the same rows.
package insert
