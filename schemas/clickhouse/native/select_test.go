package native

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// TestColumns_CurrentEngine reads blocks of the newest engine's Native format: each type
// that is asked for, in several blocks, and one that is not.
func TestColumns_CurrentEngine(t *testing.T) {
	engine := chtest.StartEngine(t)
	read := func(query string, each func([]Column, int) error) error {
		answer, err := http.Post("http://"+engine.Address+"/?default_format=Native", "", strings.NewReader(query))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		s := selection{each: each}
		r := proto.NewReader(answer.Body)
		for {
			if err := s.read(r, 0); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}

				return err
			}
		}
	}
	const rows = 150_000 // several blocks
	seen := 0
	err := read(`SELECT number AS u64, toInt64(number) - 5 AS i64, toUInt32(number) AS u32, toInt32(number) - 7 AS i32, toUInt16(number % 65536) AS u16,
		toUInt8(number % 256) AS u8, arrayMap(x -> toString(x), range(number % 3)) AS texts, arrayMap(x -> range(toUInt32(x + number % 5)), range(number % 3)) AS lists, concat('t', toString(number % 3)) AS text, toLowCardinality(concat('w', toString(intDiv(number, 1000)))) AS word
		FROM numbers(150000) SETTINGS max_threads = 1 FORMAT Native`, func(columns []Column, n int) error {
		for i := range n {
			at := int64(seen + i)
			got := []int64{columns[0].Numbers[i], columns[1].Numbers[i], columns[2].Numbers[i], columns[3].Numbers[i], columns[4].Numbers[i], columns[5].Numbers[i]}
			if want := []int64{at, at - 5, at, at - 7, at % 65536, at % 256}; !reflect.DeepEqual(got, want) {
				t.Fatalf("row %d: %d, want %d", at, got, want)
			}

			if text, word := columns[8].Texts[i], columns[9].Texts[i]; text != "t"+strconv.FormatInt(at%3, 10) || word != "w"+strconv.FormatInt(at/1000, 10) {
				t.Fatalf("row %d: %s %s", at, text, word)
			}

			texts, lists := listsOf(&columns[6], &columns[7], i)
			for k := range at % 3 {
				if len(texts) != int(at%3) || texts[k] != strconv.FormatInt(k, 10) || len(lists) != int(at%3) || len(lists[k]) != int(k+at%5) || at%5 > 0 && lists[k][at%5-1] != at%5-1 {
					t.Fatalf("row %d: texts %q, lists %d", at, texts, lists)
				}
			}
		}

		seen += n
		return nil
	})
	if err != nil || seen != rows {
		t.Fatalf("%d rows, %v", seen, err)
	}

	err = read("SELECT 0.5 AS half FORMAT Native", func([]Column, int) error { return nil })
	if !errors.Is(err, errType) || !strings.Contains(err.Error(), "half") {
		t.Errorf("a column of floats: %v", err)
	}
}

// listsOf returns a row's list of texts, and its list of lists of numbers.
func listsOf(texts, lists *Column, row int) (words []string, numbers [][]int64) {
	from, to := texts.List(row)
	words = texts.Of.Texts[from:to]
	for from, to = lists.List(row); from < to; from++ {
		first, end := lists.Of.List(int(from))
		numbers = append(numbers, lists.Of.Of.Numbers[first:end])
	}

	return words, numbers
}
