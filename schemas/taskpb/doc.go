// Package taskpb is the gRPC interface between TaskD's workers and its manager: the
// service TaskNet with the messages and numbers that TaskD uses, generated from
// task.proto.
//
// Invariant: method names and field numbers are those of the interface. Caveat: the
// worker of collector/python/taskd speaks it by hand, on Python's standard library;
// what is here serves Go programs that stand on the other side.
//
// To regenerate: protoc -I schemas/taskpb --go_out=. --go_opt=module=github.com/laggard-dev/laggard
// --go-grpc_out=. --go-grpc_opt=module=github.com/laggard-dev/laggard task.proto
package taskpb
