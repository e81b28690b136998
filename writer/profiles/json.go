package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// memberOf returns the value of a key of an object, of a text what is between its quotes; nil where it
// has none.
func memberOf(object []byte, key string) (found []byte) {
	// Of a damaged object what stands before the damage counts.
	_, _ = members(object, 0, func(k, v []byte) bool {
		if string(k) == key {
			found = text(v)
			return false
		}

		return true
	})
	return found
}

// errNoObject is returned by members where a list, a number or nothing begins.
var errNoObject = errors.New("no object")

// members calls each with the keys and values of the object that begins at b[i], until it returns
// false, and returns where that is: the object's end, as a rule.
func members(b []byte, i int, each func(key, value []byte) bool) (end int, err error) {
	if i >= len(b) || b[i] != '{' {
		return i, errNoObject
	}

	for i = space(b, i+1); i < len(b); i = space(b, end) {
		if b[i] == '}' {
			return i + 1, nil
		}

		if b[i] == ',' {
			i = space(b, i+1)
		}

		key, at, err := keyOf(b, i)
		if err != nil {
			return i, err
		}

		if end, err = value(b, at); err != nil {
			return at, err
		}

		if !each(key, b[at:end]) {
			return end, nil
		}
	}

	return 0, errShort
}

// elements splits a list, which may be a text that holds one.
func elements(list []byte) (all [][]byte) {
	if len(list) == 0 || list[0] != '[' {
		return nil
	}

	for i := space(list, 1); i < len(list) && list[i] != ']'; {
		if list[i] == ',' {
			if i = space(list, i+1); i == len(list) {
				return nil
			}
		}

		end, err := value(list, i)
		if err != nil {
			return nil
		}

		all = append(all, text(list[i:end]))
		i = space(list, end)
	}

	return all
}

// keyOf reads `"key":` at b[i] and returns where the value begins.
func keyOf(b []byte, i int) (key []byte, at int, err error) {
	if i == len(b) {
		return nil, i, errShort
	}

	if b[i] != '"' {
		return nil, i, fmt.Errorf("%q where a key is wanted", b[i])
	}

	end, err := quoted(b, i)
	if err != nil {
		return nil, i, err
	}

	key = b[i+1 : end-1]
	if at = space(b, end); at == len(b) {
		return nil, i, errShort
	}

	if b[at] != ':' {
		return nil, at, fmt.Errorf("%q where a colon is wanted", b[at])
	}

	if at = space(b, at+1); at == len(b) {
		return nil, i, errShort
	}

	return key, at, nil
}

// value returns where the value that begins at b[i] ends.
func value(b []byte, i int) (int, error) {
	switch b[i] {
	case '"':
		return quoted(b, i)
	case '{', '[':
		return nested(b, i)
	case ',', ':', '}', ']':
		return i, fmt.Errorf("%q where a value is wanted", b[i])
	}

	for ; i < len(b); i++ {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			return i, nil
		case '"', '{', '[':
			return i, fmt.Errorf("%q within a number", b[i])
		}
	}

	return i, errShort
}

// nested returns where the object or list that begins at b[i] ends. It counts brackets and does not
// ask whether they are of a kind: what is wrong inside is found by who reads it.
func nested(b []byte, i int) (int, error) {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, err := quoted(b, i)
			if err != nil {
				return i, err
			}

			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}

		i++
	}

	return i, errShort
}

// quoted returns where the string that begins at b[i] ends.
func quoted(b []byte, i int) (int, error) {
	for at := i + 1; ; {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return i, errShort
		}

		at += n
		slashes := 0
		for b[at-1-slashes] == '\\' {
			slashes++
		}

		if at++; slashes%2 == 0 {
			return at, nil
		}
	}
}

// space returns the index of the next byte, from b[i] on, that is no space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}

	return i
}

// text takes the quotes from a string; other values stay as they are.
func text(v []byte) []byte {
	if len(v) >= 2 && v[0] == '"' {
		return v[1 : len(v)-1]
	}

	return v
}

// micros reads decimal microseconds as ns; what is no number is 0. It adds up digits because a
// float64 of microseconds since 1970 has steps of a quarter of one.
func micros(v []byte) int64 {
	var ns int64
	i, neg := 0, false
	if len(v) > 0 && v[0] == '-' {
		i, neg = 1, true
	}

	digits := i
	for ; i < len(v) && v[i] >= '0' && v[i] <= '9' && i-digits < 16; i++ {
		ns = 10*ns + int64(v[i]-'0')
	}

	fraction := 0
	if i < len(v) && v[i] == '.' {
		for i++; i < len(v) && v[i] >= '0' && v[i] <= '9'; i++ {
			if fraction < 3 {
				ns = 10*ns + int64(v[i]-'0')
				fraction++
			}
		}
	}

	if i < len(v) { // an exponent, or more than there are microseconds in 300 years
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || f*1e3 >= 1<<62 || f*1e3 <= -1<<62 {
			return 0
		}

		return int64(f * 1e3)
	}

	for ; fraction < 3; fraction++ {
		ns *= 10
	}

	if neg {
		return -ns
	}

	return ns
}

// number reads a decimal number; what is none is missing.
func number(v []byte, missing int64) int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return missing
	}

	return n
}
