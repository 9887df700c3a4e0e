package world

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// kind is a kind of entity.
type kind int

const (
	person kind = iota
	town
	country
	company
	book
	kinds = iota
)

var kindNames = [kinds]string{"person", "town", "country", "company", "book"}

// relation is a fact that every entity of a kind has.
type relation struct {
	name     string
	from, to kind
}

// relations are all there are, two of each kind of entity.
var relations = [2 * kinds]relation{
	{"birthplace", person, town},
	{"employer", person, company},
	{"country", town, country},
	{"mayor", town, person},
	{"capital", country, town},
	{"leader", country, person},
	{"founder", company, person},
	{"seat", company, town},
	{"author", book, person},
	{"setting", book, town},
}

// relationsOf are the two relations of a kind, as indices into relations.
func relationsOf(k kind) [2]int { return [2]int{2 * int(k), 2*int(k) + 1} }

// entity is an index into the entities of a cast.
type entity int

// cast is the entities that all worlds have in common: their names and kinds, and which of them
// only evaluation asks about. It does not depend on a seed.
type cast struct {
	names   []string
	kinds   []kind
	heldOut []bool
}

// newCast names count[k] entities of each kind k, of which the given share, rounded, is held out.
func newCast(count [kinds]int, heldOut float64) *cast {
	c := &cast{}
	for k := range kind(kinds) {
		c.names = append(c.names, names(k, count[k])...)
		for n := range count[k] {
			c.kinds = append(c.kinds, k)
			c.heldOut = append(c.heldOut, math.Round(float64(n+1)*heldOut) > math.Round(float64(n)*heldOut))
		}
	}
	return c
}

// of lists the entities of a kind on one side of the split.
func (c *cast) of(k kind, heldOut bool) []entity {
	var list []entity
	for e, other := range c.kinds {
		if other == k && c.heldOut[e] == heldOut {
			list = append(list, entity(e))
		}
	}
	return list
}

// together is the cast without a split.
func (c *cast) together() *cast {
	return &cast{names: c.names, kinds: c.kinds, heldOut: make([]bool, len(c.names))}
}

// atlas is one world: a cast with its facts. The values of an entity's facts lie on its own side
// of the split, so that no path leads from one side to the other.
type atlas struct {
	*cast
	values  [][2]entity // of the two relations of the entity's kind
	swapped []bool      // the passage tells the second relation first
}

// newAtlas draws the facts of a world.
func newAtlas(c *cast, random *rand.Rand) *atlas {
	a := &atlas{cast: c, values: make([][2]entity, len(c.names)), swapped: make([]bool, len(c.names))}
	var sides [2][kinds][]entity
	for k := range kind(kinds) {
		sides[0][k], sides[1][k] = c.of(k, false), c.of(k, true)
	}
	for e := range c.names {
		side := &sides[0]
		if c.heldOut[e] {
			side = &sides[1]
		}
		for place, r := range relationsOf(c.kinds[e]) {
			a.values[e][place] = pick(random, side[relations[r].to])
		}
		a.swapped[e] = random.IntN(2) == 1
	}
	return a
}

// value is what an entity has for a relation of its kind.
func (a *atlas) value(e entity, r int) entity { return a.values[e][r%2] }

// other is the other fact of the passage that tells an entity's relation r.
func other(r int) int { return r ^ 1 }

// fact tells a fact as passages, memories and answers do.
func (a *atlas) fact(e entity, r int) string { return relations[r].name + " " + a.names[a.value(e, r)] }

// passage is an entity's entry in the encyclopedia. Its text repeats the name: by the title alone
// a search for it would find the passages that mention it just as well.
func (a *atlas) passage(e entity) (title, text string) {
	told := relationsOf(a.kinds[e])
	if a.swapped[e] {
		told[0], told[1] = told[1], told[0]
	}
	name := a.names[e]
	return name, fmt.Sprintf("%s: %s; %s", name, a.fact(e, told[0]), a.fact(e, told[1]))
}
