package bench

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// writeRows writes rows as CSV, compressed by gzip: a line with the names of all keys, then
// a line for each row. A cell is the value as JSON; a text that nobody could take for JSON
// stands there as it is. An empty cell is a key that the row lacks. The same rows give the
// same bytes.
func writeRows(w io.Writer, rows []Row) error {
	known := map[string]bool{}
	for _, r := range rows {
		for key := range r {
			known[key] = true
		}
	}
	keys := slices.Sorted(maps.Keys(known))
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	table := csv.NewWriter(packed)
	if err := table.Write(keys); err != nil {
		return err
	}
	for i, r := range rows {
		if len(r) == 0 {
			return fmt.Errorf("row %d is empty", i)
		}
		line := make([]string, len(keys))
		for k, key := range keys {
			value, ok := r[key]
			if !ok {
				continue
			}
			if line[k], err = cell(value); err != nil {
				return fmt.Errorf("row %d: %s: %w", i, key, err)
			}
		}
		if err := table.Write(line); err != nil {
			return err
		}
	}
	table.Flush()
	return errors.Join(table.Error(), packed.Close())
}

func cell(value any) (string, error) {
	if s, ok := value.(string); ok && s != "" && !json.Valid([]byte(s)) && strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// readRows reads what writeRows wrote. A number is a float64, as encoding/json has it.
func readRows(r io.Reader) ([]Row, error) {
	packed, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	table := csv.NewReader(packed)
	keys, err := table.Read()
	if err != nil {
		return nil, fmt.Errorf("names of the columns: %w", err)
	}
	var rows []Row
	for {
		line, err := table.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		row := Row{}
		for k, text := range line {
			if text == "" {
				continue
			}
			var value any = text
			if json.Valid([]byte(text)) {
				if err := json.Unmarshal([]byte(text), &value); err != nil {
					return nil, err
				}
			}
			row[keys[k]] = value
		}
		rows = append(rows, row)
	}
}
