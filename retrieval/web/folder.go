package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/mempo-train/mempo-train/internal/jsonl"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/address"
)

// PagesFile is the name of the file in a folder of pages that says which page each address has.
const PagesFile = "pages.jsonl"

const (
	maxLine      = 64 << 20 // of PagesFile, in bytes
	maxPageBytes = 16 << 20 // that are read of a file
)

// line is one line of PagesFile.
type line struct {
	URL  string  `json:"url"`
	Page *string `json:"page,omitempty"` // its text
	File string  `json:"file,omitempty"` // or the file that holds it, within the folder
}

// Folder is a retrieval.Accessor of pages on disk. It is safe for concurrent use.
type Folder struct {
	root       *os.Root
	pages      *os.File
	allowHosts []string
	at         map[string]place
}

// place is where a line stands in PagesFile.
type place struct{ offset, length int64 }

// OpenFolder reads the list of the pages of a folder, PagesFile: one JSON object a line, {"url", "page"}
// with the page's text or {"url", "file"} with the name of a file in the folder, whose text is taken
// as it is or, where it ends in .html, .htm or .xhtml, as HTMLText makes it. The last line of an
// address counts. Only where the lines stand is kept in memory. Addresses are told apart by host,
// port, path and query: http and https, a slash at the end and what follows '#' make no difference.
func OpenFolder(dir string, allowHosts []string) (*Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("folder of pages: %w", err)
	}
	pages, err := root.Open(PagesFile)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("folder of pages %s: %w", dir, err), root.Close())
	}
	f := &Folder{root: root, pages: pages, allowHosts: allowHosts, at: map[string]place{}}
	if err := f.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", filepath.Join(dir, PagesFile), err), f.Close())
	}
	return f, nil
}

// Len is the number of addresses that have a page.
func (f *Folder) Len() int { return len(f.at) }

// Close closes the folder.
func (f *Folder) Close() error { return errors.Join(f.pages.Close(), f.root.Close()) }

func (f *Folder) read() error {
	scanner := bufio.NewScanner(f.pages)
	scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
	scanner.Split(wholeLines)
	offset := int64(0)
	n := 1
	for ; scanner.Scan(); n++ {
		text := scanner.Bytes()
		here := place{offset, int64(len(text))}
		offset += here.length
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		l, err := readLine(text)
		if err != nil && text[len(text)-1] != '\n' {
			break // a recording was cut off here
		}
		if err == nil {
			err = f.add(l, here)
		}
		if err != nil {
			return fmt.Errorf(`line %d: %w; a right line: {"url": "https://…", "page": "text"} or {"url": "https://…", "file": "name.html"}`, n, err)
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d MiB", n, maxLine>>20)
	} else if err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	return nil
}

// wholeLines is bufio.ScanLines with the line breaks, so that offsets can be counted.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end+1], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func readLine(text []byte) (l line, err error) {
	if err = jsonl.Decode(bytes.TrimSpace(text), &l); err != nil {
		return l, err
	}
	if (l.Page == nil) == (l.File == "") {
		return l, errors.New(`want "page" or "file", one of the two`)
	}
	return l, nil
}

func (f *Folder) add(l line, here place) error {
	u, err := url.Parse(l.URL)
	if err != nil || u.Host == "" {
		return fmt.Errorf("url is %.100q, want an address", l.URL)
	}
	if l.File != "" {
		if info, err := f.root.Stat(l.File); err != nil {
			return fmt.Errorf("file %q cannot be read: %w", l.File, err)
		} else if !info.Mode().IsRegular() {
			return fmt.Errorf("file %q is no regular file", l.File)
		}
	}
	f.at[key(u)] = here
	return nil
}

// key tells addresses apart.
func key(u *url.URL) string {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if port := u.Port(); port != "" && port != "80" && port != "443" {
		host += ":" + port
	}
	k := host + strings.TrimSuffix(u.Path, "/")
	if u.RawQuery != "" {
		k += "?" + u.RawQuery
	}
	return k
}

// Access returns the text of the page at an address, "" where the folder has none. Addresses are
// refused as if they were fetched, with a *retrieval.RefusedError. A file that cannot be read, or has
// changed since OpenFolder, is a *retrieval.ServiceError.
func (f *Folder) Access(_ context.Context, page string) (string, error) {
	u, err := address.Parse(page, f.allowHosts)
	if err != nil {
		return "", retrieval.Refuse(page, err.Error())
	}
	here, found := f.at[key(u)]
	if !found {
		return "", nil
	}
	text, err := f.page(here)
	if err != nil {
		return "", &retrieval.ServiceError{
			Service: "access", URL: filepath.Join(f.root.Name(), PagesFile), Attempts: 1, Kind: retrieval.KindUnreachable, Detail: err.Error(),
		}
	}
	return text, nil
}

// page reads the page that a line gives.
func (f *Folder) page(here place) (string, error) {
	text := make([]byte, here.length)
	if _, err := f.pages.ReadAt(text, here.offset); err != nil {
		return "", err
	}
	l, err := readLine(text)
	if err != nil {
		return "", fmt.Errorf("the line at byte %d: %w", here.offset, err)
	}
	if l.Page != nil {
		return *l.Page, nil
	}
	file, err := f.root.Open(l.File)
	if err != nil {
		return "", err
	}
	defer file.Close()
	body, err := io.ReadAll(io.LimitReader(file, maxPageBytes))
	if err != nil {
		return "", err
	}
	switch strings.ToLower(filepath.Ext(l.File)) {
	case ".html", ".htm", ".xhtml":
		return HTMLText(decode(body, "text/html")), nil
	}
	return strings.TrimSpace(printable(decode(body, "text/plain; charset=utf-8"))), nil
}

// writeLine is a line of PagesFile for a page.
func writeLine(page, text string) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(line{URL: page, Page: &text})
	return out.Bytes(), err
}
