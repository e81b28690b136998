package ship

import "sync"

// Stream is one sequence of rows whose order depends on content alone.
type Stream struct {
	// Name tells streams apart in logs.
	Name string
	// looks is owned by Run's goroutine.
	looks map[string]*look

	mu    sync.Mutex
	acked any // guarded by mu
	puts  int // guarded by mu: parts put and not yet acknowledged
}

// NewStream returns a stream of which nothing is known: its first rows are
// looked up in the store.
func NewStream(name string) *Stream { return &Stream{Name: name, looks: map[string]*look{}} }

// Acked returns the mark of the last Put of which everything is stored, nil
// before the first.
func (st *Stream) Acked() any {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.acked
}

// Pending returns the number of Puts that are not yet acknowledged.
func (st *Stream) Pending() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.puts
}

// ack notes that a Put is stored. One without a mark leaves the one before: marks are made
// once in a while only.
func (st *Stream) ack(mark any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.puts--
	if mark != nil {
		st.acked = mark
	}
}
