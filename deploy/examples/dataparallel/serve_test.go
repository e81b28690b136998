package dataparallel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// order is one line that serve is told. One field is set.
type order struct {
	Join *membership `json:"join,omitempty"`
	// Warm loads so many batches, outside of any step: what a process that stands by
	// does.
	Warm  int   `json:"warm,omitempty"`
	Train *span `json:"train,omitempty"`
	Leave bool  `json:"leave,omitempty"`
}

// membership is who trains together from now on.
type membership struct {
	Name      string   `json:"name"`      // of the communicator
	Ranks     []int    `json:"ranks"`     // global ranks, in the ring's order
	Addresses []string `json:"addresses"` // of their listeners
}

// span is the steps From … To-1. Cut, when it is one of them, is a step in which
// this worker's links break once.
type span struct {
	From int `json:"from"`
	To   int `json:"to"`
	Cut  int `json:"cut,omitempty"`
}

// report is one line that serve says.
type report struct {
	Event   string `json:"event"` // "ready", "joined", "warm", "step", "done", "failed" or "left"
	Address string `json:"address,omitempty"`
	Step    int    `json:"step,omitempty"`   // that ended, or failed
	Ranges  uint64 `json:"ranges,omitempty"` // recorded so far
	Cause   string `json:"cause,omitempty"`
}

// errCut is the failure of a link that span.Cut asked for.
var errCut = errors.New("link cut")

// serve is a worker that does what it is told, order by order, as a training
// process does under an elastic launcher: it joins, trains, loses its peers, joins
// others, trains again. A value on terminate is SIGTERM: the step at hand is
// finished, a last checkpoint is saved (the dying gasp), and serve returns, as it
// does at the end of the orders.
func serve(c Config, orders io.Reader, reports io.Writer, terminate <-chan os.Signal) error {
	w, err := open(c)
	if err != nil {
		return err
	}
	defer w.close()
	s := &server{worker: w, out: json.NewEncoder(reports), terminate: terminate}
	if err := s.say(report{Event: "ready", Address: c.Listener.Addr().String()}); err != nil {
		return err
	}

	lines := make(chan order)
	stop := make(chan struct{})
	defer close(stop)
	var broken error
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(orders); in.Scan(); {
			var o order
			if broken = json.Unmarshal(in.Bytes(), &o); broken != nil {
				return
			}

			select {
			case lines <- o:
			case <-stop:
				return
			}
		}
	}()
	for {
		select {
		case <-terminate:
			return s.gasp()
		case o, more := <-lines:
			if !more {
				return broken
			}

			over, err := s.obey(o)
			if err != nil || over {
				return err
			}
		}
	}
}

type server struct {
	*worker
	out       *json.Encoder
	terminate <-chan os.Signal
}

func (s *server) say(r report) error {
	r.Ranges = s.ranges
	return s.out.Encode(r)
}

// obey carries an order out and tells whether it was the last.
func (s *server) obey(o order) (over bool, err error) {
	switch {
	case o.Join != nil:
		if err := s.join(o.Join.Name, o.Join.Ranks, o.Join.Addresses); err != nil {
			return false, err
		}

		return false, s.say(report{Event: "joined"})
	case o.Warm > 0:
		for range o.Warm {
			s.load()
		}

		return false, s.say(report{Event: "warm"})
	case o.Train != nil:
		return s.train(*o.Train)
	case o.Leave:
		return true, s.say(report{Event: "left"})
	}

	return false, fmt.Errorf("empty order")
}

// train does a span of steps. A step that fails is reported and nothing follows
// it: whoever gives the orders says what is to be done.
func (s *server) train(part span) (over bool, err error) {
	for step := part.From; step < part.To; step++ {
		if step == part.Cut && part.Cut > 0 {
			s.ring.close()
		}

		failure := s.step(step)
		said := report{Event: "step", Step: step}
		if failure != nil {
			s.ring.close() // the peers must not wait for this one
			if step == part.Cut {
				failure = errors.Join(errCut, failure)
			}

			said = report{Event: "failed", Step: step, Cause: failure.Error()}
		}

		if err := s.say(said); err != nil {
			return true, err
		}

		select {
		case <-s.terminate:
			return true, s.gasp()
		default:
		}

		if failure != nil {
			return false, nil
		}
	}

	return false, s.say(report{Event: "done", Step: part.To - 1})
}

// gasp saves the last checkpoint.
func (s *server) gasp() error {
	if err := s.checkpoint(); err != nil {
		return err
	}

	return s.say(report{Event: "left"})
}
