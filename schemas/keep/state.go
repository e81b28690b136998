package keep

import (
	"encoding/json"
	"errors"
	"io/fs"
)

// A state file keeps what a process has set elsewhere, as JSON, for the one after it to take back.
// With "" for its name nothing is kept.

// maxState bounds what is read of a state file.
const maxState = 64 << 20

// LoadState fills v with what was saved in a state file; where nothing was, v stays as it is.
func LoadState(file string, v any) error {
	if file == "" {
		return nil
	}

	data, err := Read(file, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	return json.Unmarshal(data, v)
}

// SaveState replaces a state file durably.
func SaveState(file string, v any) error {
	if file == "" {
		return nil
	}

	data, err := json.Marshal(v)
	if err != nil {
		return err
	}

	return Write(file, 0o600, data)
}
