package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Source is a part of a set that is put together from several.
type Source struct {
	Files []string // question files, or patterns of their names; see Expand
	// Name is the source of questions whose row does not say it, and keeps ids apart that several
	// benchmarks use; "" for none.
	Name             string
	Fields           map[string]string // as in Options
	Weight           float64           // of the draws, see Mix; 0 is 1
	Sample           int               // questions drawn from all of the source; 0, and more than there are, is all
	Seed             uint64            // of that sample
	Aliases          string            // JSONL file of 2WikiMultihopQA's aliases, for rows with an "answer_id"; "" for none
	MaxQuestionChars int               // longer questions are left out; 0 is no bound
}

// Set is a checked set of questions in the order of its sources and files.
type Set struct {
	Questions []Question
	// Hash stands for the questions and the weights of the sources: equal hashes mean that the same
	// draws give the same questions, whatever the format of the files.
	Hash  string
	Parts []Part // one for each source; Question.Part is a place in it
}

// Part tells what became of a source.
type Part struct {
	Name   string
	Files  []string // as the patterns were expanded
	Weight float64
	Rows   int     // read
	Shapes []Count // of the rows, by what was recognised, in the order in which they came
	// LeftOut counts rows that are no questions of the set, by reason; so does a sample with the rest.
	LeftOut   []Count
	Composed  []Count // questions by their objectives, where several were made into one
	Questions int     // that are in the set
}

// Count is a number of rows with what they have in common.
type Count struct {
	What string
	Rows int
}

func count(counts *[]Count, what string) {
	for k := range *counts {
		if (*counts)[k].What == what {
			(*counts)[k].Rows++
			return
		}
	}
	*counts = append(*counts, Count{what, 1})
}

// Load reads and checks one or more question files, as one set: LoadSources with a single source.
func Load(files []string, options Options) (*Set, error) {
	return LoadSources([]Source{{Files: files, Fields: options.Fields}})
}

// LoadSources reads and checks the question files of one or more sources. A file is Parquet, JSONL,
// one JSON array or TriviaQA's {"Data": […]}, told apart by its first bytes, or CSV or TSV with a
// header, by its name. A row has one of these shapes, told apart by its columns (a column that is
// null, or empty in CSV, counts as absent):
//
//   - {"id", "question", "golden_answers"}, FlashRAG's, with "data_source" and "hops" optional
//   - verl and Search-R1: golden answers in reward_model.ground_truth.target (or ground_truth
//     itself), source in data_source; the question is extra_info.question, else the column
//     question, else prompt; where that is a list of messages, the content of the last one with
//     the role "user", as it stands
//   - HotpotQA and 2WikiMultihopQA: {"_id", "question", "answer"}
//   - MuSiQue: {"id", "question", "answer", "answer_aliases"}; a row that is not "answerable" is left out
//   - PopQA: {"question", "possible_answers"}, a list or a JSON list in a string
//   - TriviaQA: {"question", "question_id", "answer": {"value", "aliases", "normalized_aliases"}}, or with
//     the capital letters of its original
//   - NQ-open: {"question", "answer": […]}; Bamboogle: {"Question", "Answer"}
//
// Golden answers are a string (one answer), a list of strings (alternatives), or a list of lists
// (several objectives). Numbers are refused. Blank strings in a list are dropped, as they would
// match nothing; so are those with a ';' where there are several objectives, whose answers ';'
// separates: a row that has no others for an objective is left out. A row without an id gets its
// number in the set, from 1. Two rows with the same id and source are refused; where only the
// sources differ, every id of the set is written as "source/id", so that ids are unique. The number
// of hops is a whole number from 1 in the column "hops", else that of an id as MuSiQue has them
// ("2hop__…"), else not known.
func LoadSources(sources []Source) (*Set, error) {
	l := loader{seen: map[key]place{}}
	set := &Set{}
	for k, source := range sources {
		part, questions, err := l.source(source)
		if err != nil {
			return nil, err
		}
		for q := range questions {
			questions[q].Part = k
		}
		set.Questions = append(set.Questions, questions...)
		set.Parts = append(set.Parts, part)
	}
	if len(sources) == 0 {
		return nil, errors.New("no question file given")
	}
	if err := l.qualifyIDs(set.Questions); err != nil {
		return nil, err
	}
	set.rehash()
	return set, nil
}

// rehash computes the hash. Without a mix it is that of the questions alone.
func (s *Set) rehash() {
	s.Hash = Hash(s.Questions)
	if len(s.Parts) < 2 {
		return
	}
	type share struct {
		Weight    float64
		Questions int
	}
	shares := make([]share, len(s.Parts))
	for k, part := range s.Parts {
		shares[k] = share{part.Weight, part.Questions}
	}
	s.Hash = hash([]any{s.Hash, shares})
}

// key identifies a question: sources number their questions independently of each other.
type key struct{ source, id string }

type loader struct {
	shape    shape
	from     Source
	part     Part
	aliases  map[string][]string // of the source, by the id of an entity
	accepted []Question          // of the source
	number   int                 // of all accepted questions
	seen     map[key]place
}

// source reads one source.
func (l *loader) source(s Source) (Part, []Question, error) {
	if err := checkFields(s.Fields); err != nil {
		return Part{}, nil, err
	}
	files, err := Expand(s.Files)
	if err != nil {
		return Part{}, nil, fmt.Errorf("question file: %w", err)
	}
	if len(files) == 0 {
		return Part{}, nil, errors.New("no question file given")
	}
	if file := twice(files); file != "" {
		return Part{}, nil, fmt.Errorf("question file %s is named twice in %s", file, strings.Join(s.Files, ", "))
	}
	weight := s.Weight
	if weight == 0 {
		weight = 1
	}
	l.shape, l.from, l.accepted = shape{fields: s.Fields}, s, nil
	if l.aliases, err = readAliases(s.Aliases); err != nil {
		return Part{}, nil, err
	}
	l.part = Part{Name: s.Name, Files: files, Weight: weight}
	for _, path := range files {
		if err := readFile(path, content{name: "question", example: example, columns: l.shape.columns(), add: l.add}); err != nil {
			return Part{}, nil, err
		}
	}
	if len(l.accepted) == 0 {
		return Part{}, nil, fmt.Errorf("question file %s: no question is left of %d rows: %s", strings.Join(files, ", "), l.part.Rows, list(l.part.LeftOut))
	}
	questions, err := sample(l.accepted, s.Sample, s.Seed)
	if rest := len(l.accepted) - len(questions); rest > 0 {
		l.part.LeftOut = append(l.part.LeftOut, Count{"not in the sample", rest})
	}
	l.part.Questions = len(questions)
	return l.part, questions, err
}

// add checks one row and accepts its question.
func (l *loader) add(rec record, at place) error {
	l.part.Rows++
	q, form, err := l.shape.question(rec)
	if err == nil {
		err = l.tooLong(q)
	}
	if err == nil {
		err = addAliases(&q, rec, l.aliases)
	}
	var reason leftOut
	switch {
	case errors.As(err, &reason):
		count(&l.part.LeftOut, string(reason))
		return nil
	case err != nil:
		return err
	}
	count(&l.part.Shapes, form)
	if q.Source == "" {
		q.Source = l.from.Name
	}
	l.number++
	if q.ID == "" {
		q.ID = strconv.Itoa(l.number)
	}
	k := key{q.Source, q.ID}
	if first, ok := l.seen[k]; ok {
		return fmt.Errorf("id %q is already that of %s; ids must be unique, but may be the same under several sources (data_source, or name in data.mix)", q.ID, first)
	}
	l.seen[k] = at
	l.accepted = append(l.accepted, q)
	return nil
}

// leftOut is the reason why a good row is no question of the set.
type leftOut string

func (l leftOut) Error() string { return string(l) }

func (l *loader) tooLong(q Question) error {
	if limit := l.from.MaxQuestionChars; limit > 0 && utf8.RuneCountInString(q.Text) > limit {
		return leftOut(fmt.Sprintf("longer than %d characters", limit))
	}
	return nil
}

func list(counts []Count) string {
	texts := make([]string, len(counts))
	for k, c := range counts {
		texts[k] = fmt.Sprintf("%d %s", c.Rows, c.What)
	}
	return strings.Join(texts, ", ")
}

// sample draws n of the questions, which stay in their order; all for 0.
func sample(questions []Question, n int, seed uint64) ([]Question, error) {
	if n == 0 || n >= len(questions) {
		return questions, nil
	}
	order, err := NewOrder("question sample", len(questions), seed, true)
	if err != nil {
		return nil, err
	}
	places := order.Next(n)
	slices.Sort(places)
	drawn := make([]Question, n)
	for k, place := range places {
		drawn[k] = questions[place]
	}
	return drawn, nil
}

// qualifyIDs puts the source before every id if an id occurs under more than one source. An id or source
// with a '/' of its own may then look like another, which is refused.
func (l *loader) qualifyIDs(questions []Question) error {
	ids := make(map[string]bool, len(l.seen))
	for k := range l.seen {
		ids[k.id] = true
	}
	if len(ids) == len(l.seen) {
		return nil
	}
	seen := make(map[string]bool, len(questions))
	for k := range questions {
		q := &questions[k]
		q.ID = q.Source + "/" + q.ID
		if seen[q.ID] {
			return fmt.Errorf("two questions are %s, by source and id; ids must be unique, so let neither hold a '/'", quote(q.ID))
		}
		seen[q.ID] = true
	}
	return nil
}

// Hash is the SHA-256, in hex, of questions with their ids, golden answers and sources, in order.
func Hash(questions []Question) string { return hash(questions) }

func hash[T any](set []T) string {
	h := sha256.New()
	encoder := json.NewEncoder(h) // a JSON value a line: no two lists are written alike
	for _, member := range set {
		if err := encoder.Encode(member); err != nil {
			panic(err) // strings always encode, and a hash never fails to take them
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
