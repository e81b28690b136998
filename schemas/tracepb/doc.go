// Package tracepb is the gRPC interface of the switch: the service
// TrainingDataTrace with the messages and numbers that MindCluster's clients
// use, generated from trace.proto.
//
// Invariant: method names, field numbers and codes are those of the documented
// interface; nothing of ours is added to the messages. Caveat: the words in
// ProfilingSwitch are not checked here but in collector/trace.
//
// To regenerate: protoc -I schemas/tracepb --go_out=. --go_opt=module=github.com/laggard-dev/laggard
// --go-grpc_out=. --go-grpc_opt=module=github.com/laggard-dev/laggard trace.proto
package tracepb
