package index

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/mempo-train/mempo-train/internal/durable"
)

// titlesFile holds the hash of each passage's title with its row, in the order of the hashes.
const titlesFile = "titles.bin"

const titleBytes = 12 // of a hash and a row

// titleOf is the first line of contents without the quotes around it, "" where that is no title.
func titleOf(contents string) string {
	first, _, _ := strings.Cut(contents, "\n")
	first = strings.TrimSpace(first)
	if len(first) < 2 || first[0] != '"' || first[len(first)-1] != '"' {
		return ""
	}
	return first[1 : len(first)-1]
}

// titleKey is what titles are compared by: spelling by case, compatibility form and width of spaces
// does not count, and an underscore is a space.
func titleKey(title string) string {
	title = cases.Fold().String(norm.NFKC.String(strings.ReplaceAll(title, "_", " ")))
	return strings.Join(strings.Fields(title), " ")
}

// writeTitles writes the titles of the passages in a folder.
func writeTitles(dir string, p *passages) error {
	hashes := make([]hashedRow, 0, p.count)
	for row := range p.count {
		contents, err := p.bytes(2*row + 1)
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(contents[:min(len(contents), 4096)]), "\n")
		if key := titleKey(titleOf(first)); key != "" {
			hashes = append(hashes, hashedRow{hashText(key), uint32(row)})
		}
	}
	sortHashed(hashes)
	return durable.WriteFile(filepath.Join(dir, titlesFile), func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<20)
		var entry [titleBytes]byte
		for _, h := range hashes {
			binary.LittleEndian.PutUint64(entry[:], h.hash)
			binary.LittleEndian.PutUint32(entry[8:], h.row)
			if _, err := out.Write(entry[:]); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}

// titles finds passages by title.
type titles struct {
	*mapped
	passages *passages
}

// rows lists the passages of a title in the order of the corpus, at most limit.
func (t *titles) rows(title string, limit int) ([]int, error) {
	key := titleKey(title)
	want, n := hashText(key), len(t.data)/titleBytes
	hash := func(k int) uint64 { return binary.LittleEndian.Uint64(t.data[titleBytes*k:]) }
	var rows []int
	for k := sort.Search(n, func(k int) bool { return hash(k) >= want }); k < n && hash(k) == want && len(rows) < limit; k++ {
		row := int(binary.LittleEndian.Uint32(t.data[titleBytes*k+8:]))
		passage, err := t.passages.at(row)
		if err != nil {
			return nil, err
		}
		if titleKey(titleOf(passage.Contents)) == key {
			rows = append(rows, row)
		}
	}
	slices.Sort(rows)
	return rows, nil
}

// titlesIn are the titles that an address or a plain title may mean: of an address what stands
// behind /wiki/, or its last part, with escapes resolved.
func titlesIn(address string) []string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return []string{address}
	}
	var found []string
	if _, behind, ok := strings.Cut(u.Path, "/wiki/"); ok {
		found = append(found, behind)
	}
	path := strings.TrimRight(u.Path, "/")
	return append(found, path[strings.LastIndexByte(path, '/')+1:])
}

func openTitles(dir string, p *passages) (*titles, error) {
	path := filepath.Join(dir, titlesFile)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size()%titleBytes != 0 || info.Size() > int64(p.count)*titleBytes {
		return nil, fmt.Errorf("%s has %d bytes, want at most %d in parts of %d: it was cut or changed", path, info.Size(), p.count*titleBytes, titleBytes)
	}
	m, err := mapFile(path, info.Size())
	if err != nil {
		return nil, err
	}
	return &titles{m, p}, nil
}

// The most of one page: passages, and bytes of text.
const (
	pagePassages = 1000
	pageBytes    = 1 << 20
)

// Page is the text of all passages with the title that an address or a plain title names, in the
// order of the corpus, "" if there is none. The title stands once, in front.
func (x *Index) Page(address string) (_ string, err error) {
	defer guarded("the index", &err)()
	for _, title := range titlesIn(address) {
		if titleKey(title) == "" {
			continue
		}
		rows, err := x.titles.rows(title, pagePassages)
		if err != nil {
			return "", err
		}
		if len(rows) > 0 {
			return x.page(rows)
		}
	}
	return "", nil
}

func (x *Index) page(rows []int) (string, error) {
	var page strings.Builder
	for k, row := range rows {
		passage, err := x.passages.at(row)
		if err != nil {
			return "", err
		}
		title, text, _ := strings.Cut(passage.Contents, "\n")
		if k == 0 {
			page.WriteString(title)
		}
		page.WriteString("\n" + text)
		if page.Len() > pageBytes {
			return strings.ToValidUTF8(page.String()[:pageBytes], ""), nil
		}
	}
	return page.String(), nil
}
