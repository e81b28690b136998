package profiles

import (
	"errors"
	"fmt"
	"io"
)

// A profile in JSON is one document of up to gigabytes, nearly all of it one list:
// {"traceEvents":[{…},{…}], …}, or the list alone. scanDocument hands over one element after the
// other. It is a scanner of our own because the libraries hold the whole document (sonic), or read
// it token by token at a twentieth of the speed (encoding/json; BenchmarkTrace has both). jsontext,
// which is no release yet, splits a document as quickly, and every event would be read a second
// time for its seven fields.

const (
	documentChunk = 1 << 20
	// mostElement bounds one element, or one value beside the list.
	mostElement = 16 << 20
)

var (
	errShort = errors.New("more is needed")
	errCut   = errors.New("cut: it ends in the middle")
)

// document scans a JSON document of any length: a list of elements, or an object that has the list
// under a name and small values beside it.
type document struct {
	list   string // the name of the list
	beside func(key, value []byte)
	each   func(b []byte, i int) (end int, err error) // takes the element at b[i]

	r      io.Reader
	buf    []byte // what is read and not yet scanned
	start  int    // of buf within space
	space  []byte
	offset int64 // of buf in the document
	err    error // of r
}

// scanDocument calls each with the elements of a list and beside with the key and value of all that
// stands beside it. The error says at which byte the document breaks off.
func scanDocument(r io.Reader, list string, beside func(key, value []byte), each func(b []byte, i int) (end int, err error)) error {
	d := &document{list: list, beside: beside, each: each, r: r, space: make([]byte, documentChunk)}
	if err := d.scan(); err != nil {
		return d.told(err)
	}

	return nil
}

// scanObjects calls each with the objects of a file that has one after the other, a line each as a rule.
func scanObjects(r io.Reader, each func(object []byte)) error {
	d := &document{r: r, space: make([]byte, documentChunk)}
	for {
		_, err := d.next()
		if errors.Is(err, errShort) && errors.Is(d.err, io.EOF) {
			return nil
		}

		if err == nil {
			err = d.whole(func(b []byte) (int, error) {
				if b[0] != '{' {
					return 0, fmt.Errorf("%q where an object is wanted", b[0])
				}

				end, err := value(b, 0)
				if err == nil {
					each(b[:end])
				}

				return end, err
			})
		}

		if err != nil {
			return d.told(err)
		}
	}
}

// told is an error with the place at which the document breaks off.
func (d *document) told(err error) error {
	if errors.Is(err, errShort) {
		if err = d.err; err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errCut
		}
	}

	return fmt.Errorf("at byte %d: %w", d.offset, err)
}

// more reads on; false at the end.
func (d *document) more() bool {
	if d.err != nil || len(d.buf) >= mostElement {
		return false
	}

	if d.start > 0 {
		copy(d.space, d.buf)
		d.start = 0
	}

	n := len(d.buf)
	if n == len(d.space) {
		d.space = append(d.space, make([]byte, len(d.space))...)
	}

	var read int
	for read == 0 && d.err == nil {
		read, d.err = d.r.Read(d.space[n:])
	}

	d.buf = d.space[:n+read]
	return read > 0
}

// step goes on by n bytes.
func (d *document) step(n int) {
	d.buf = d.buf[n:]
	d.start += n
	d.offset += int64(n)
}

// whole calls scan with what is buffered, with more of it until that is enough, and goes on
// behind what was scanned. scan returns errShort where the buffer ends too early: it begins again
// with more, and must have done nothing that lasts by then.
func (d *document) whole(scan func(b []byte) (int, error)) error {
	for {
		n, err := scan(d.buf)
		if err == nil {
			d.step(n)
			return nil
		}

		if !errors.Is(err, errShort) {
			d.step(n)
			return err
		}

		if !d.more() {
			if len(d.buf) >= mostElement {
				return fmt.Errorf("an element is longer than %d bytes", mostElement)
			}

			return errShort
		}
	}
}

// next returns the next byte that is no space, without going over it.
func (d *document) next() (c byte, err error) {
	err = d.whole(func(b []byte) (int, error) {
		i := space(b, 0)
		if i == len(b) {
			return i, errShort
		}

		c = b[i]
		return i, nil
	})
	return c, err
}

// scan takes the document: the list itself, or an object that has it among its members.
func (d *document) scan() error {
	c, err := d.next()
	if err != nil {
		return err
	}

	if c == '[' {
		return d.elements()
	}

	if c != '{' {
		return fmt.Errorf("%q where { or [ is wanted", c)
	}

	d.step(1)
	for first := true; ; first = false {
		if c, err = d.next(); err != nil {
			return err
		}

		switch {
		case c == '}':
			return nil
		case c == ',' && !first:
			d.step(1)
			if c, err = d.next(); err != nil {
				return err
			}
		}

		if c != '"' {
			return fmt.Errorf("%q where a key is wanted", c)
		}

		if err := d.member(); err != nil {
			return err
		}
	}
}

// member takes a key of the document with its value.
func (d *document) member() error {
	list := false
	err := d.whole(func(b []byte) (int, error) {
		key, i, err := keyOf(b, 0)
		if err != nil {
			return 0, err
		}

		if list = string(key) == d.list; list {
			return i, nil
		}

		end, err := value(b, i)
		if err != nil {
			return 0, err
		}

		d.beside(key, b[i:end])
		return end, nil
	})
	if err != nil || !list {
		return err
	}

	if c, err := d.next(); err != nil || c != '[' {
		return errors.Join(err, fmt.Errorf("%s is no list", d.list))
	}

	return d.elements()
}

// elements takes the elements of the list.
func (d *document) elements() error {
	d.step(1)
	for {
		done := false
		err := d.whole(func(b []byte) (int, error) {
			i := space(b, 0)
			if i < len(b) && b[i] == ',' {
				i = space(b, i+1)
			}

			switch {
			case i == len(b):
				return 0, errShort
			case b[i] == ']':
				done = true
				return i + 1, nil
			case b[i] != '{':
				return i, fmt.Errorf("%q where an element is wanted", b[i])
			}

			return d.each(b, i)
		})
		if err != nil || done {
			return err
		}
	}
}
