package record

import "strings"

// Word is the number of a string in a list of Words.
type Word uint32

// Words numbers strings, of which it keeps copies: a word is looked up once, where its line is
// parsed, and is a number from there to the store. The zero value is ready; it is not safe
// for concurrent use.
//
// Invariant: a word's number stays, and List()[0] is "". A list that was handed out
// may be read while more words are added.
type Words struct {
	list  []string
	index map[string]Word // the words that stand in a line as they are, and ""
	odd   map[string]Word // those with escapes or text beyond ASCII
	bytes int
	last  Numbers // of each key, as a Parser read it last
	kinds [KindCount]Word
	sides [2]Word
	// Of these, the ones that were needed when the list was begun: see Needed.
	neededWords, neededBytes int
}

// Numbers are the numbers of a record's words.
type Numbers struct{ Name, Op, OpRaw, Group, Dtype, Path Word }

const (
	// Words beyond those needed and these are better numbered anew: lines are hostile
	// input.
	mostWords     = 1 << 14
	mostWordBytes = 1 << 20
)

// List returns the words so far by their numbers.
func (t *Words) List() []string {
	t.begin()
	return t.list[:len(t.list):len(t.list)]
}

// Text returns the word of a number.
func (t *Words) Text(w Word) string {
	if w == 0 {
		return ""
	}

	return t.list[w]
}

// Bytes returns the bytes of all words.
func (t *Words) Bytes() int { return t.bytes }

// Full reports whether the words are so many that it is better to begin anew.
func (t *Words) Full() bool {
	return len(t.list)-t.neededWords > mostWords || t.bytes-t.neededBytes > mostWordBytes
}

// Needed says that the words so far are needed: to begin anew would number them again.
func (t *Words) Needed() { t.neededWords, t.neededBytes = len(t.list), t.bytes }

// begin puts the empty word first, once.
func (t *Words) begin() {
	if t.list == nil {
		t.list, t.index = make([]string, 1, 64), map[string]Word{"": 0}
	}
}

// Add returns the number of s.
func (t *Words) Add(s string) Word {
	if s == "" {
		return 0
	}

	if w, ok := t.index[s]; ok {
		return w
	}

	if w, ok := t.odd[s]; ok {
		return w
	}

	return t.add(strings.Clone(s))
}

// add numbers a new word.
func (t *Words) add(s string) Word {
	t.begin()
	w := Word(len(t.list))
	t.list = append(t.list, s)
	if unescaped(s) {
		t.index[s] = w
	} else {
		if t.odd == nil {
			t.odd = map[string]Word{}
		}

		t.odd[s] = w
	}

	t.bytes += len(s)
	return w
}

// Kind returns the number of a kind's wire word.
func (t *Words) Kind(k Kind) Word {
	w := &t.kinds[k.Known()]
	if *w == 0 {
		*w = t.Add(k.String())
	}

	return *w
}

// Side returns the number of a side's word.
func (t *Words) Side(s Side) Word {
	w := &t.sides[s&1]
	if *w == 0 {
		*w = t.Add(s.String())
	}

	return *w
}

// Number returns the numbers of a record's words.
func (t *Words) Number(r *Record) Numbers {
	return Numbers{t.Add(r.Name), t.Add(r.Op), t.Add(r.OpRaw), t.Add(r.Group), t.Add(r.Dtype), t.Add(r.Path)}
}
