package simulate

// task is one pass of one micro-batch through one stage.
type task struct {
	stage    int
	backward bool
	micro    int
}

// schedule returns the 1F1B order of a pipeline as one list in which everything
// that a task waits for stands before it: each stage's own order, and forward
// from the stage before, backward from the stage behind.
func schedule(stages, micro int) []task {
	own := make([][]task, stages)
	for p := range own {
		own[p] = oneForwardOneBackward(p, stages, micro)
	}
	type key struct {
		stage    int
		backward bool
		micro    int
	}
	done := map[key]bool{}
	next := make([]int, stages)
	var out []task
	for len(out) < 2*stages*micro {
		for p := range own {
			for next[p] < len(own[p]) {
				t := own[p][next[p]]
				if !t.backward && p > 0 && !done[key{p - 1, false, t.micro}] ||
					t.backward && p < stages-1 && !done[key{p + 1, true, t.micro}] {
					break
				}
				done[key{p, t.backward, t.micro}] = true
				out = append(out, t)
				next[p]++
			}
		}
	}
	return out
}

// oneForwardOneBackward is the order within stage p: forwards until the pipeline
// is full, then one of each in turn, then what is left of the backwards.
func oneForwardOneBackward(p, stages, micro int) []task {
	warm := min(stages-p-1, micro)
	var out []task
	for m := range warm {
		out = append(out, task{p, false, m})
	}
	for m := range micro - warm {
		out = append(out, task{p, false, warm + m}, task{p, true, m})
	}
	for m := micro - warm; m < micro; m++ {
		out = append(out, task{p, true, m})
	}
	return out
}
