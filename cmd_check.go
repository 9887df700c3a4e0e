package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/reward"
)

func (p *program) checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check a run and print what it will do; trains and writes nothing",
		ArgsUsage: "RUN.toml, SFT.toml, EVAL.toml, WORLD.toml, INDEX.toml or RETRIEVE.toml",
		Args:      true,
		Description: `Prints the resolved settings, the prompts, the data, the tools, an estimate of the memory and the state of
the run folder. Problems are listed at the end; the exit code is that of training with the same file.`,
		Flags: []cli.Flag{setFlag()},
		Action: func(c *cli.Context) error {
			path, err := onlyFile(c)
			if err != nil {
				return err
			}
			return runCheck(c.Context, path, c.StringSlice("set"), p.out)
		},
	}
}

// onlyFile is the one argument of a command that reads a config.
func onlyFile(c *cli.Context) (string, error) {
	switch c.Args().Len() {
	case 0:
		return "", fault.Usage(fmt.Errorf("%s needs a TOML file: mempo-train %s %s", c.Command.Name, c.Command.Name, c.Command.ArgsUsage))
	case 1:
		return c.Args().First(), nil
	}
	return "", fault.Usage(fmt.Errorf("found %q behind the file %s; only --set key=value may stand there", c.Args().Get(1), c.Args().First()))
}

// runCheck prints the plan of a run to out and returns what would keep it from training, all of it
// as far as it can be told.
func runCheck(ctx context.Context, path string, sets []string, out io.Writer) error {
	kind, err := config.KindOf(path)
	if err != nil {
		return fault.Usage(err)
	}
	switch kind {
	case config.KindSFT:
		return checkSFT(path, sets, out)
	case config.KindEvaluation:
		return checkEvaluation(ctx, path, sets, out)
	case config.KindWorld:
		return checkWorld(path, sets, out)
	case config.KindIndex:
		return checkIndex(path, sets, out)
	case config.KindRetrieve:
		return checkRetrieve(ctx, path, sets, out)
	}
	c, err := config.Load(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	p := &plan{findings: findings{out: out}, config: c}
	p.showSettings()
	if p.texts, err = loadTexts(c); err != nil {
		p.problem(err)
		p.showUnmeasured("training", trainingSelection(c.Data))
		p.showUnmeasured("evaluation", evaluationSelection(c.Data))
	} else {
		p.showTexts()
		p.showData()
	}
	p.showTools(ctx, "tools", c)
	if e := forEvaluation(c); c.Eval.Every > 0 && !reflect.DeepEqual(e.Tools, c.Tools) {
		p.showTools(ctx, "tools of evaluations", e)
	}
	p.showModel()
	p.showRunFolder()
	return p.verdict()
}

// plan is what check knows of a run.
type plan struct {
	findings
	config *config.Config

	texts           *texts     // nil where they cannot be read
	data            *questions // nil where they cannot be read
	longestPrompt   int        // tokens
	checkpointBytes int64      // 0 where it cannot be told
}

// findings are what check prints, and the problems that it has come across.
type findings struct {
	out      io.Writer
	problems []error
}

// problem notes an error once, wherever else it shows.
func (f *findings) problem(err error) {
	same := func(other error) bool { return other.Error() == err.Error() }
	if err != nil && !slices.ContainsFunc(f.problems, same) {
		f.problems = append(f.problems, err)
	}
}

func (f *findings) heading(text string)               { fmt.Fprintf(f.out, "\n== %s ==\n", text) }
func (f *findings) line(format string, values ...any) { fmt.Fprintf(f.out, format+"\n", values...) }

// verdict is all problems as one error; those of config and data come first and decide the exit
// code.
func (f *findings) verdict() error {
	f.heading("verdict")
	if len(f.problems) == 0 {
		f.line("nothing stands in the way of this run")
		return nil
	}
	slices.SortStableFunc(f.problems, func(a, b error) int { return rank(a) - rank(b) })
	for _, problem := range f.problems {
		f.line("%v", problem)
	}
	return errors.Join(f.problems...)
}

// rank orders problems by what the user can do about them.
func rank(err error) int {
	return slices.Index([]int{fault.CodeUsage, fault.CodeEnvironment, fault.CodeOther}, fault.Code(err))
}

func (p *plan) showSettings() {
	p.line("== settings ==")
	p.problem(config.Write(p.out, p.config))
	p.heading("step")
	p.line("%s", strings.TrimSpace(p.config.Describe()))
}

func (p *plan) showTexts() {
	p.heading("system prompt")
	p.line("%s", p.texts.systemPrompt)
	p.heading("texts")
	t := p.texts.rules.Texts
	for _, text := range [][2]string{
		{"corrective", t.Correct},
		{"refused_tool", t.Unavailable},
		{"refused_url", t.Refused},
		{"empty_query", t.Empty},
		{"no_results", t.NoResults},
		{"tool_error", t.ToolFailed},
	} {
		p.line("%s: %s", text[0], text[1])
	}
}

// shownRows is the number of first questions that are shown of a set.
const shownRows = 3

func (p *plan) showData() {
	data, err := loadQuestions(p.config, trainingSelection(p.config.Data), p.texts)
	p.problem(err)
	p.heading("data")
	if data != nil {
		p.data = data
		p.showQuestions("training", data)
	}
	p.showEvaluated()
	if data == nil || len(data.kept) == 0 {
		return
	}
	p.problem(p.measurePrompts(data.kept))
	p.problem(checkCache(p.config, p.texts, data.kept))
	p.showPrompt(data.kept[0])
}

// showEvaluated shows the questions of the run's evaluations, or of those that it could have.
func (p *plan) showEvaluated() {
	if len(evaluationSelection(p.config.Data).sources) == 0 {
		return
	}
	e, err := newEvaluator(p.config, p.texts)
	switch {
	case err != nil:
	case p.config.Eval.Every > 0:
		err = e.load()
	default: // nobody asks them: that the cache be large enough for them is not needed
		e.data, err = loadQuestions(e.config, evaluationSelection(e.config.Data), e.texts)
	}
	p.problem(err)
	if e.data != nil {
		p.showQuestions("evaluation", e.data)
	}
}

// showPrompt shows what the model sees of the first question.
func (p *plan) showPrompt(first dataset.Question) {
	prompt, err := p.texts.rules.Format.Prompt(first.Text)
	if err != nil {
		p.problem(fault.Usage(err))
		return
	}
	p.heading(fmt.Sprintf("first prompt, %d tokens", len(prompt)))
	p.line("%s%s", p.texts.tokenizer.Decode(prompt), p.config.Rollout.Prefill)
}

// showQuestions shows what is in a set, and the first rows as they were understood.
func (p *plan) showQuestions(kind string, set *questions) {
	p.line("%s: %d questions", kind, len(set.kept))
	if len(set.dropped) > 0 {
		p.line("%s", set.overLength())
	}
	for k, part := range set.Parts {
		p.showPart(k, part, set)
	}
}

// showUnmeasured shows questions whose prompts cannot be measured, as the model's texts are missing.
func (p *plan) showUnmeasured(kind string, of selection) {
	if len(of.sources) == 0 {
		return
	}
	p.heading("data of " + kind + ", prompts not measured")
	set, err := of.load()
	if err != nil {
		p.problem(err)
		return
	}
	p.showQuestions(kind, &questions{Set: set, kept: set.Questions})
}

// showPart shows a source: what became of it, and its first questions.
func (p *plan) showPart(place int, part dataset.Part, set *questions) {
	p.line("%s", describePart(part))
	shown := 0
	for _, question := range set.kept {
		if question.Part == place && shown < shownRows {
			p.line("  %s: %s → %s", onALine(question.ID), onALine(question.Text), onALine(goldenAnswers(question)))
			shown++
		}
	}
}

// showDraws shows how often the training questions are gone through.
func (p *plan) showDraws(set *questions) error {
	steps := p.config.Run.Steps
	draws := steps * p.config.Rollout.QuestionsPerStep
	if len(set.Parts) == 1 {
		p.line("%d steps draw %d questions: %.1f passes", steps, draws, float64(draws)/float64(len(set.kept)))
		return nil
	}
	sampler, err := set.sampler(p.config)
	if err != nil {
		return fault.Usage(err)
	}
	drawn, sizes := make([]int, len(set.Parts)), make([]int, len(set.Parts))
	for _, question := range set.kept {
		sizes[question.Part]++
	}
	for _, question := range sampler.Next(draws) {
		drawn[question.Part]++
	}
	p.line("%d steps draw %d questions:", steps, draws)
	for k, part := range set.Parts {
		p.line("  %d (%.1f%%) of the %d of %s: %.1f passes", drawn[k], 100*float64(drawn[k])/float64(draws), sizes[k],
			cmp.Or(part.Name, strings.Join(part.Files[:1], "")), float64(drawn[k])/float64(sizes[k]))
	}
	return nil
}

// goldenAnswers writes the answers of each objective.
func goldenAnswers(question dataset.Question) string {
	var objectives []string
	for _, answers := range question.Objectives {
		objectives = append(objectives, strings.Join(answers, " | "))
	}
	return strings.Join(objectives, "; ")
}

func (p *plan) measurePrompts(kept []dataset.Question) error {
	_, longest, err := p.texts.longestPrompt(kept)
	if err != nil {
		return err
	}
	p.longestPrompt = longest
	p.line("longest prompt: %d tokens; the context has %d", p.longestPrompt, p.texts.rules.ContextLength)
	return p.showDraws(p.data)
}

// showTools tells of the [tools] of c.
func (p *plan) showTools(ctx context.Context, heading string, c *config.Config) {
	p.heading(heading)
	if len(c.Tools.Enabled)+len(c.Tools.Custom) == 0 {
		p.line("none")
	}
	unrecorded := *c
	unrecorded.Tools.Access.Record = "" // which would make the folder
	tools, err := loadTools(&unrecorded, zap.NewNop())
	if err != nil {
		p.problem(err)
		return
	}
	defer tools.close()
	p.showGrader(ctx, tools.grader)
	search := c.Tools.Search
	switch {
	case tools.Search == nil:
	case search.Backend == "bm25":
		p.line("search: %d passages of %s, the best %d", tools.passages, search.Corpus, search.TopK)
	case search.Backend == "index":
		p.line("search: %s of %s, the best %d", tools.searched.describe(), search.Index, search.TopK)
	default:
		p.reached("search", strings.Join(search.URL, ", "), tools.probe(ctx))
	}
	if tools.Access != nil {
		p.showAccess(ctx, c.Tools.Access, tools)
	}
	for _, tool := range c.Tools.Custom {
		p.reached(fmt.Sprintf("%s, <%s>", tool.Name, tool.TagName()), tool.URL, connects(ctx, tool.Name, tool.URL))
	}
}

// showGrader has an example graded.
func (p *plan) showGrader(ctx context.Context, grader reward.Grader) {
	if grader == nil {
		return
	}
	answer := "Lima"
	score, err := grader.Grade(ctx, reward.Answered{
		ID: "example", Question: "What is the capital of Peru?", GoldenAnswers: []string{answer}, Answer: &answer, EM: 1, F1: 1, FormatOK: true,
		Turns: []string{"<mem></mem><think>I know that.</think><answer>" + answer + "</answer>"},
	})
	if err != nil {
		p.problem(fault.Usage(err))
		return
	}
	p.line("reward command: scores the right answer to an example question %v", score)
}

// boundsOfWeb tells which hosts are opened and how often.
func boundsOfWeb(allowed []string, perSecond float64) string {
	hosts := "every public host"
	if len(allowed) > 0 {
		hosts = "only " + strings.Join(allowed, ", ")
	}
	return fmt.Sprintf("%s, %v requests a second to each (0 is no bound)", hosts, perSecond)
}

// showAccess tells where pages come from, and to what bounds.
func (p *plan) showAccess(ctx context.Context, a config.Access, tools *toolset) {
	switch a.Via {
	case "direct":
		robots := "robots.txt is asked"
		if !a.Robots {
			robots = "robots.txt is not asked"
		}
		p.line("access: from the web, %s, %s", boundsOfWeb(a.AllowHosts, a.PerSecond), robots)
	case "folder":
		p.line("access: %d pages of %s", tools.pages, a.Folder)
	default:
		p.reached("access", a.URL, connects(ctx, "access", a.URL))
	}
	if a.Record != "" {
		p.line("access: pages are recorded in %s", a.Record)
	}
}

func (p *plan) reached(tool, address string, err error) {
	p.problem(err)
	state := "reachable"
	if err != nil {
		state = "not reachable"
	}
	p.line("%s: service at %s, %s", tool, address, state)
}

// connects tells whether something listens at the address of a tool. What a service of pages, or one of
// the user's own, has an answer to is not known, so nothing is asked.
func connects(ctx context.Context, tool, address string) error {
	parsed, err := url.Parse(address)
	if err != nil {
		return fault.Usage(fmt.Errorf("address of the %s service: %w", tool, err))
	}
	port := parsed.Port()
	if port == "" {
		port = parsed.Scheme // a name that stands for its port
	}
	connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(parsed.Hostname(), port))
	if err != nil {
		return fault.Environment(fmt.Errorf("%s service %s: not reachable: %w", tool, parsed.Redacted(), err))
	}
	return connection.Close()
}
