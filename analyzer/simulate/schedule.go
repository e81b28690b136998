package simulate

// task is one pass of one micro-batch through one stage's part of the model.
type task struct {
	stage int
	way   int // forth or back
	micro int
	chunk int
}

// The two ways through the model.
const (
	forth = iota
	back
)

// schedule returns the 1F1B order of a pipeline (PipeDream, SOSP'19), interleaved where a
// stage has several chunks (Megatron-LM, SC'21, section 2.2), as one list in which
// everything that a task waits for stands before it: each stage's own order, forward from
// the part of the model before, backward from the part behind.
func schedule(stages, micro, chunks int) []task {
	own := make([][]task, stages)
	for p := range own {
		own[p] = oneForwardOneBackward(p, stages, micro, chunks)
	}

	done := map[task]bool{}
	next := make([]int, stages)
	var out []task
	for len(out) < 2*stages*micro*chunks {
		before := len(out)
		for p := range own {
			for next[p] < len(own[p]) {
				t := own[p][next[p]]
				if need, some := t.needs(stages, chunks); some && !done[need] {
					break
				}

				done[t] = true
				out = append(out, t)
				next[p]++
			}
		}

		if len(out) == before {
			panic("BUG: the schedule waits for itself")
		}
	}

	return out
}

// needs returns the task of another stage whose result t takes, if any: the part of the model
// before it on the way forth, behind it on the way back. Parts go round the stages.
func (t task) needs(stages, chunks int) (task, bool) {
	part := t.chunk*stages + t.stage - 1
	if t.way == back {
		part += 2
	}

	if part < 0 || part >= stages*chunks {
		return task{}, false
	}

	return task{part % stages, t.way, t.micro, part / stages}, true
}

// oneForwardOneBackward is the order within stage p: forwards until the pipeline
// is full, then one of each in turn, then what is left of the backwards.
func oneForwardOneBackward(p, stages, micro, chunks int) []task {
	all := micro * chunks
	warm := min(stages-p-1, all)
	if chunks > 1 {
		warm = min(2*(stages-p-1)+(chunks-1)*stages, all)
	}

	// Groups of as many micro-batches as there are stages go through one chunk after the other.
	nth := func(k, way int) task {
		in := k % (stages * chunks)
		chunk := in / stages
		if way == back {
			chunk = chunks - 1 - chunk
		}

		return task{p, way, k/(stages*chunks)*stages + in%stages, chunk}
	}
	var out []task
	for k := range warm {
		out = append(out, nth(k, forth))
	}

	for k := range all - warm {
		out = append(out, nth(warm+k, forth), nth(k, back))
	}

	for k := all - warm; k < all; k++ {
		out = append(out, nth(k, back))
	}

	return out
}
