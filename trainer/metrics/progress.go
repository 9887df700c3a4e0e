package metrics

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"
)

// Progress shows a person how far the run is. Its methods may be called from several goroutines.
type Progress interface {
	// Stage begins a stage of total units; 0 if their number is not known.
	Stage(name string, total int) Stage
	// Line shows one line that stays.
	Line(text string)
	// Close ends all display.
	Close()
}

// Stage is a part of the work that is under way.
type Stage interface {
	// Add counts n more units as done.
	Add(n int)
	// Done ends the stage, however far it came.
	Done()
}

// lineEvery is how often a stage that goes on for long is reported off a terminal.
const lineEvery = 30 * time.Second

// NewProgress shows bars if out is a terminal, plain lines elsewhere.
func NewProgress(out *os.File) Progress {
	if _, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS); err != nil {
		return NewLines(out)
	}
	return &bars{mpb.New(mpb.WithOutput(out))}
}

// bars shows one moving bar for each stage that is under way.
type bars struct{ container *mpb.Progress }

func (b *bars) Stage(name string, total int) Stage {
	return &bar{b.container.AddBar(int64(total),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name+" "), decor.CountersNoUnit("%d / %d")),
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_MMSS)),
	)}
}

func (b *bars) Line(text string) {
	fmt.Fprintln(b.container, text) // above the bars
}

func (b *bars) Close() { b.container.Shutdown() }

type bar struct{ bar *mpb.Bar }

func (b *bar) Add(n int) { b.bar.IncrBy(n) }

func (b *bar) Done() {
	b.bar.Abort(true) // does nothing to a bar that is full
	b.bar.Wait()
}

// NewLines shows plain lines: one when a stage ends, and one every half minute until then.
func NewLines(out io.Writer) Progress {
	return &lines{out: out, now: time.Now}
}

type lines struct {
	mutex sync.Mutex
	out   io.Writer
	now   func() time.Time
}

func (l *lines) Stage(name string, total int) Stage {
	begin := l.now()
	return &lineStage{lines: l, name: name, total: total, begin: begin, shown: begin}
}

func (l *lines) Line(text string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	fmt.Fprintln(l.out, text)
}

func (l *lines) Close() {}

type lineStage struct {
	lines        *lines
	name         string
	done, total  int // guarded by lines.mutex, like shown
	begin, shown time.Time
}

func (s *lineStage) Add(n int) {
	s.lines.mutex.Lock()
	defer s.lines.mutex.Unlock()
	s.done += n
	if now := s.lines.now(); now.Sub(s.shown) >= lineEvery {
		s.show(now)
	}
}

func (s *lineStage) Done() {
	s.lines.mutex.Lock()
	defer s.lines.mutex.Unlock()
	s.show(s.lines.now())
}

// show prints the stage's line; the mutex is held.
func (s *lineStage) show(now time.Time) {
	s.shown = now
	seconds := now.Sub(s.begin).Seconds()
	if s.total > 0 {
		fmt.Fprintf(s.lines.out, "%s: %d of %d, %.1f s\n", s.name, s.done, s.total, seconds)
		return
	}
	fmt.Fprintf(s.lines.out, "%s: %d, %.1f s\n", s.name, s.done, seconds)
}
