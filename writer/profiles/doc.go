// Package profiles reads what other tools recorded of a job (traces, dumps, tables)
// and writes it as segments, so that all that reads a profiling directory reads them.
//
//	<folder>/rank0.pt.trace.json.gz   ─ format.Read ─▶ identity, ranges ─▶ <Dir>/<job>/0/1694128201
//	<folder>/rank1.pt.trace.json.gz   ─ format.Read ─▶ identity, ranges ─▶ <Dir>/<job>/1/1694128201
//
// A profile is what one tool wrote in one go: a file, or a folder of files with one that
// leads. A format tells its profiles by content, and reads one into an output: whose ranges
// they are (record.Meta, with parallel groups), the ranges as records of the five kinds, and
// what of the profile it could not read, by file and cause. All else is done here, once for
// every format: finding files, decompressing, names of jobs and ranks, segments, errors.
//
// # A new format
//
// is one file and one test, and a line in formats. The file provides a format:
//
//   - Leads looks at the name and the beginning of a file (profileFile.Head is decompressed) and
//     says whether it leads a profile of this format. It must say no to all that it does not
//     know for certain; of several files that tell the same, one leads.
//   - Read streams the profile (profileFile.Open, profileFile.Beside; scanDocument and scanObjects for JSON,
//     openDatabase for SQLite; a capture joins what a trace says of one process). It calls
//     output.Rank for each rank in it, and rankOutput.Add for each range: Step (host window),
//     Communication (of the device where it is known, with Exposed: what no computation of the
//     same rank covers; see cover), FP, DataLoader, SaveCheckpoint, "backward", "optimizer". Order does
//     not matter. A range of the device has HostStart where the launch is known, for that says
//     in which step it is.
//   - What is damaged, cut or unknown goes to output.Unread with file and cause, and what was
//     read before stays. Read returns an error only where nothing of the profile is of use.
//
// Invariant: the lines of a profile's segments, and their identities, are a function of the
// profile's content, the job's name and the rank alone: the same file gives the same rows
// whoever reads it, so a store takes each range once.
//
// Caveat: clocks are those of the profile. What hosts' clocks differ by is not repaired here;
// who compares two ranks' times aligns them first (analyzer/arrival).
//
// Profiles are hostile input: bounded in number, depth and memory, no symbolic link is
// followed below the given folder, nothing panics. A pickle is not loaded. A database is read through
// one open file, and nothing that it defines is run.
package profiles
