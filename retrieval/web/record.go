package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/address"
)

// Recorder is a retrieval.Accessor that writes the pages another one brings into a folder, for
// OpenFolder. It is safe for concurrent use.
type Recorder struct {
	from       retrieval.Accessor
	allowHosts []string

	mutex sync.Mutex
	file  *os.File
	known map[string]bool // keys of addresses that the folder has
}

// Record adds the pages that from brings to a folder, which is made where there is none. A line
// that a crash left unfinished is removed. An address that the folder has is not written again.
func Record(dir string, from retrieval.Accessor, allowHosts []string) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of pages: %w", err)
	}
	path := filepath.Join(dir, PagesFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("folder of pages: %w", err)
	}
	r := &Recorder{from: from, allowHosts: allowHosts, file: file, known: map[string]bool{}}
	if err := dropUnfinished(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	folder, err := OpenFolder(dir, allowHosts)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for k := range folder.at {
		r.known[k] = true
	}
	return r, folder.Close()
}

// dropUnfinished cuts a file behind its last line break.
func dropUnfinished(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for end := info.Size(); end > 0; {
		start := max(0, end-int64(len(block)))
		part := block[:end-start]
		if _, err := file.ReadAt(part, start); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if at := bytes.LastIndexByte(part, '\n'); at >= 0 {
			return file.Truncate(start + int64(at) + 1)
		}
		end = start
	}
	return file.Truncate(0)
}

// Close closes the file; the accessor behind it stays open.
func (r *Recorder) Close() error { return r.file.Close() }

// Access is that of the accessor behind it. A page that cannot be written is a *retrieval.ServiceError.
func (r *Recorder) Access(ctx context.Context, page string) (string, error) {
	text, err := r.from.Access(ctx, page)
	if err != nil {
		return "", err
	}
	if err := r.keep(page, text); err != nil {
		return "", &retrieval.ServiceError{
			Service: "access", URL: r.file.Name(), Attempts: 1, Kind: retrieval.KindUnreachable, Detail: "the page cannot be recorded: " + err.Error(),
		}
	}
	return text, nil
}

func (r *Recorder) keep(page, text string) error {
	u, err := address.Parse(page, r.allowHosts)
	if err != nil {
		return err
	}
	written, err := writeLine(page, text)
	if err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if k := key(u); !r.known[k] {
		r.known[k] = true
		_, err = r.file.Write(written)
	}
	return err
}
