package segment

// Turn is what the writers of one rank's directory share when a process has several
// of them: a trainer and its forked workers, or one that was restarted while the old
// one's rings were still full. Readers take every segment but the newest for
// finished, so a writer begins another segment when one of the others has begun a
// newer one than its own. The zero value is ready; the writers are one goroutine's.
//
// Caveat: writers in other processes are not seen while they write; each agent has
// ranks of its own.
type Turn struct{ newest int64 }

// Saw says that a segment of that number is in the directory. A nil Turn is that of
// a writer which is alone.
func (t *Turn) Saw(number int64) {
	if t != nil {
		t.newest = max(t.newest, number)
	}
}

// Over reports whether there is a newer segment than that of the number.
func (t *Turn) Over(number int64) bool { return t != nil && t.newest > number }
