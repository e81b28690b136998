package profiles

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// A profile in JSON is one document of up to gigabytes, nearly all of it one list:
// {"traceEvents":[{…},{…}], …}, or the list alone. scanDocument hands over one element after the
// other, from bufio.Scanner's buffer. The splitting is our own because the libraries hold the whole
// document (sonic), or read it token by token at a twentieth of the speed (encoding/json;
// BenchmarkTrace has both). jsontext, which is no release yet, splits a document as quickly, and
// every event would be read a second time for its seven fields.

const (
	// documentChunk is how much is read at once: some thousand events.
	documentChunk = 1 << 20
	// mostElement bounds one element, or one value beside the list.
	mostElement = 16 << 20
)

var (
	errShort = errors.New("more is needed")
	// errEnd is errShort where the file may end.
	errEnd = fmt.Errorf("%w, unless nothing follows", errShort)
	errCut = errors.New("cut: it ends in the middle")
)

// scanDocument reads a JSON document of any length: a list of elements, or an object that has the list
// under a name and small values beside it. It calls each with the elements, and beside with the key and
// value of all that stands beside the list. The error says at which byte the document breaks off.
func scanDocument(r io.Reader, list string, beside func(key, value []byte), each func(b []byte, i int) (end int, err error)) error {
	var object, inList bool // what has been begun and not ended
	return scanPieces(r, func(b []byte, i int) (int, error) {
		if object && !inList && i < len(b) && b[i] == '}' {
			return i, io.EOF
		}

		if (object || inList) && i < len(b) && b[i] == ',' {
			i = space(b, i+1)
		}

		switch {
		case i == len(b):
			return i, errShort
		case inList && b[i] == '{':
			return each(b, i)
		case inList && b[i] == ']' && object:
			inList = false
			return i + 1, nil
		case inList && b[i] == ']':
			return i + 1, io.EOF
		case inList:
			return i, fmt.Errorf("%q where an element is wanted", b[i])
		case object:
			end, found, err := member(b, i, list, beside)
			inList = found
			return end, err
		case b[i] == '[':
			inList = true
			return i + 1, nil
		case b[i] == '{':
			object = true
			return i + 1, nil
		}

		return i, fmt.Errorf("%q where { or [ is wanted", b[i])
	})
}

// member takes a key of a document with its value, of the list no more than its bracket.
func member(b []byte, i int, list string, beside func(key, value []byte)) (end int, isList bool, err error) {
	key, at, err := keyOf(b, i)
	if err != nil {
		return i, false, err
	}

	if string(key) != list {
		if end, err = value(b, at); err != nil {
			return i, false, err
		}

		beside(key, b[at:end])
		return end, false, nil
	}

	if b[at] != '[' {
		return at, false, fmt.Errorf("%s is no list", list)
	}

	return at + 1, true, nil
}

// scanObjects calls each with the objects of a file that has one after the other, a line each as a rule.
func scanObjects(r io.Reader, each func(object []byte)) error {
	return scanPieces(r, func(b []byte, i int) (int, error) {
		if i == len(b) {
			return i, errEnd
		}

		if b[i] != '{' {
			return i, fmt.Errorf("%q where an object is wanted", b[i])
		}

		end, err := value(b, i)
		if err == nil {
			each(b[i:end])
		}

		return end, err
	})
}

// scanPieces has take take all of r, piece by piece: what begins at b[i], where no space is, or nothing is
// left. Where b ends too early take returns errShort and is called again with more: it must have done
// nothing that lasts by then. io.EOF is the end, whatever follows.
func scanPieces(r io.Reader, take func(b []byte, i int) (end int, err error)) error {
	var offset int64 // of what is not taken yet
	var err error    // of take
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, documentChunk), mostElement)
	s.Split(func(b []byte, _ bool) (i int, _ []byte, stop error) {
		for err = nil; err == nil; {
			i = space(b, i)
			var end int
			if end, err = take(b, i); !errors.Is(err, errShort) {
				i = end
			}
		}

		offset += int64(i)
		if !errors.Is(err, errShort) {
			stop = bufio.ErrFinalToken
		}

		return i, nil, stop
	})
	s.Scan() // it ends where there is no more or take says so, for it is given no token
	switch of := s.Err(); {
	case errors.Is(err, io.EOF), errors.Is(err, errEnd) && of == nil:
		return nil
	case !errors.Is(err, errShort):
	case errors.Is(of, bufio.ErrTooLong):
		err = fmt.Errorf("an element is longer than %d bytes", mostElement)
	case of == nil, errors.Is(of, io.ErrUnexpectedEOF):
		err = errCut
	default:
		err = of
	}

	return fmt.Errorf("at byte %d: %w", offset, err)
}
