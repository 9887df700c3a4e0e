package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/configs"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/index"
	"github.com/mempo-train/mempo-train/retrieval/web"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/reward/command"
	"github.com/mempo-train/mempo-train/rollout"
)

// toolset is what the model may use and what grades its answers, with what must be closed afterwards.
type toolset struct {
	rollout.Tools
	grader   reward.Grader // nil without reward.command
	passages int           // of an in-process corpus
	pages    int           // of a folder of pages
	closers  []io.Closer
	cache    *retrieval.Cache // nil without one
	searched *inProcess       // nil unless an index is searched in the process
}

func loadTools(c *config.Config, log *zap.Logger) (*toolset, error) {
	t := &toolset{Tools: rollout.Tools{TopK: c.Tools.Search.TopK}}
	if c.Tools.CacheMiB > 0 {
		t.cache = retrieval.NewCache(int64(c.Tools.CacheMiB) << 20)
		t.CacheHits = t.cache.Hits
	}
	err := t.add(c, log)
	if err == nil {
		err = t.addGrader(c.Reward, log)
	}
	if err != nil {
		t.close()
		return nil, asUsage(err)
	}
	t.Concurrency = max(1, t.Concurrency)
	return t, nil
}

// add adds every tool. Each bounds its own calls: that many run at the same time, all of them together.
func (t *toolset) add(c *config.Config, log *zap.Logger) error {
	tools := c.Tools
	for _, name := range tools.Enabled {
		var err error
		switch name {
		case "search":
			t.Concurrency += tools.Search.Concurrency
			err = t.addSearch(c, log)
		case "access":
			t.Concurrency += tools.Access.Concurrency
			err = t.addAccess(tools.Access, log)
		}
		if err != nil {
			return err
		}
	}
	for _, tool := range tools.Custom {
		t.Concurrency += tool.Concurrency
		if err := t.addCustom(tool, log); err != nil {
			return err
		}
	}
	return nil
}

// asUsage takes errors that nothing else is known of for the user's.
func asUsage(err error) error {
	var marked *fault.Error
	if errors.As(err, &marked) {
		return err
	}
	return fault.Usage(err)
}

func (t *toolset) addSearch(c *config.Config, log *zap.Logger) error {
	switch s := c.Tools.Search; s.Backend {
	case "bm25":
		passages, err := index.LoadCorpus(s.Corpus)
		if err != nil {
			return withGet(err, c.Data.Get)
		}
		t.passages = len(passages)
		t.Search = index.NewBM25(passages)
	case "http":
		return t.addServices(s, log)
	case "index":
		opened, err := openInProcess(c)
		if err != nil {
			return err
		}
		t.closers = append(t.closers, closer(func() { _ = opened.close() })) // a reader: nothing is lost
		t.searched, t.Search = opened, opened
	}
	return nil
}

// addServices adds search by services: each query goes to one of them, a second time if that takes long,
// and is asked for once.
func (t *toolset) addServices(s config.Search, log *zap.Logger) error {
	var services retrieval.Spread
	for _, url := range s.URL {
		client, err := t.client(retrieval.HTTPOptions{
			URL: url, Timeout: s.Timeout.Duration(), Tries: s.Tries, Concurrency: s.Concurrency, Logger: log,
		})
		if err != nil {
			return fmt.Errorf("tools.search.url: %w", err)
		}
		services = append(services, client)
	}
	t.Search = services
	if s.HedgeAfter > 0 {
		t.Search = retrieval.NewHedged(t.Search, s.HedgeAfter.Duration(), s.Concurrency/8)
	}
	if t.cache != nil {
		t.Search = t.cache.Searcher(strings.Join(s.URL, " "), t.Search)
	}
	return nil
}

func (t *toolset) addAccess(a config.Access, log *zap.Logger) error {
	switch a.Via {
	case "direct":
		fetcher := web.New(web.Options{
			AllowHosts: a.AllowHosts, Timeout: a.Timeout.Duration(), Tries: a.Tries, Concurrency: a.Concurrency,
			PerSecond: a.PerSecond, IgnoreRobots: !a.Robots, UserAgent: "mempo-train/" + version, Logger: log,
		})
		t.closers = append(t.closers, closer(fetcher.Close))
		t.Access = fetcher
	case "folder":
		folder, err := web.OpenFolder(a.Folder, a.AllowHosts)
		if err != nil {
			return fmt.Errorf("tools.access.folder: %w", err)
		}
		t.closers, t.pages = append(t.closers, folder), folder.Len()
		t.Access = folder
	default:
		client, err := t.client(retrieval.HTTPOptions{
			URL: a.URL, Timeout: a.Timeout.Duration(), Tries: a.Tries, Concurrency: a.Concurrency, AllowHosts: a.AllowHosts, Logger: log,
		})
		if err != nil {
			return fmt.Errorf("tools.access.url: %w", err)
		}
		t.Access = client
	}
	if err := t.record(a); err != nil {
		return err
	}
	if t.cache != nil && a.Via != "folder" {
		t.Access = t.cache.Accessor(a.Via+" "+a.URL, t.Access)
	}
	return nil
}

// record has the pages kept where that is wanted.
func (t *toolset) record(a config.Access) error {
	if a.Record == "" {
		return nil
	}
	recorder, err := web.Record(a.Record, t.Access, a.AllowHosts)
	if err != nil {
		return fmt.Errorf("tools.access.record: %w", err)
	}
	t.closers = append(t.closers, recorder)
	t.Access = recorder
	return nil
}

func (t *toolset) addCustom(c config.CustomTool, log *zap.Logger) error {
	client, err := t.client(retrieval.HTTPOptions{
		Service: c.Name, URL: c.URL, Timeout: c.Timeout.Duration(), Tries: c.Tries, Concurrency: c.Concurrency, Logger: log,
	})
	if err != nil {
		return fmt.Errorf("url of the custom tool %q: %w", c.Name, err)
	}
	t.Custom = append(t.Custom, rollout.CustomTool{Tag: c.TagName(), Asked: client, TopK: c.TopK})
	return nil
}

func (t *toolset) addGrader(r config.Reward, log *zap.Logger) error {
	if len(r.Command) == 0 {
		return nil
	}
	grader, err := command.New(command.Options{
		Command: r.Command, Timeout: r.CommandTimeout.Duration(), Workers: r.CommandWorkers, Logger: log,
	})
	if err != nil {
		return fmt.Errorf("reward.command: %w", err)
	}
	t.grader, t.closers = grader, append(t.closers, closer(grader.Close))
	return nil
}

func (t *toolset) client(options retrieval.HTTPOptions) (*retrieval.HTTP, error) {
	client, err := retrieval.NewHTTP(options)
	if err == nil {
		t.closers = append(t.closers, closer(client.Close))
	}
	return client, err
}

// closer is an io.Closer that cannot fail.
type closer func()

// Close calls it.
func (c closer) Close() error { c(); return nil }

// probe asks the search service once, so that a wrong address shows before the model is loaded.
func (t *toolset) probe(ctx context.Context) error {
	if t.Search == nil {
		return nil
	}
	_, err := t.Search.Search(ctx, "capital", 1)
	return fault.Environment(err)
}

// close lets go of everything, what was made last first.
func (t *toolset) close() {
	var errs []error
	for k := len(t.closers) - 1; k >= 0; k-- {
		errs = append(errs, t.closers[k].Close())
	}
	_ = errors.Join(errs...) // connections and files that were read, or appended to in whole lines
}

// customTools is what the model is told of the custom tools.
func customTools(c *config.Config) []configs.Tool {
	var tools []configs.Tool
	for _, tool := range c.Tools.Custom {
		tools = append(tools, configs.Tool{Tag: tool.TagName(), Description: tool.Description})
	}
	return tools
}

// customTags are the tags of a run.
func customTags(c *config.Config) (chat.Tags, error) {
	var names []string
	for _, tool := range c.Tools.Custom {
		names = append(names, tool.TagName())
	}
	tags, err := chat.NewTags(names...)
	if err != nil {
		return tags, fault.Usage(fmt.Errorf("tools.custom: %w", err))
	}
	return tags, nil
}
