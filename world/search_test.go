package world

import (
	"context"
	"fmt"
	"testing"

	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/index"
)

// The search finds the passage of every entity by its name, however many passages mention it.
func TestSearchFindsEveryEntity(t *testing.T) {
	few, many := someOptions(5), someOptions(6)
	few.People, few.Towns, few.Countries, few.Companies, few.Books = 18, 6, 6, 9, 40
	many.People, many.Books = 2000, 3000
	for name, o := range map[string]Options{"quickstart": someOptions(1), "another seed": someOptions(2), "few": few, "many": many} {
		t.Run(name, func(t *testing.T) {
			p := planned(t, o)
			for number := range 2 {
				a := p.atlas(number)
				var passages []retrieval.Passage
				for e := range a.names {
					title, text := a.passage(entity(e))
					passages = append(passages, retrieval.Passage{ID: fmt.Sprint(e), Contents: contents(title, text)})
				}
				corpus := index.NewBM25(passages)
				for e, name := range a.names {
					found, err := corpus.Search(context.Background(), name, 1)
					if err != nil || len(found) != 1 || found[0].ID != fmt.Sprint(e) {
						t.Fatalf("a search for %s finds %v, %v", name, found, err)
					}
				}
			}
		})
	}
}
