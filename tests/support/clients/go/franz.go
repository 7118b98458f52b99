package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	bootstrap string
	own       *owned
	client    *kgo.Client
	group     string
}

func newFranz(bootstrap string, own *owned) member { return &franz{bootstrap: bootstrap, own: own} }

func flat(all map[string][]int32) []part {
	found := []part{}
	for topic, partitions := range all {
		for _, p := range partitions {
			found = append(found, part{topic, p})
		}
	}
	return found
}

func (f *franz) subscribe(c command) {
	f.group = c.Group
	balancers := map[string]kgo.GroupBalancer{
		"": kgo.RangeBalancer(), "range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	reset := kgo.NewOffset().AtStart()
	if c.Reset == "latest" {
		reset = kgo.NewOffset().AtEnd()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(f.bootstrap),
		kgo.ConsumerGroup(c.Group),
		kgo.Balancers(balancers[c.Strategy]),
		kgo.SessionTimeout(time.Duration(c.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.RebalanceTimeout(30 * time.Second),
		kgo.ConsumeResetOffset(reset),
		kgo.DisableAutoCommit(),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, all map[string][]int32) {
			memberID, generation := client.GroupMetadata()
			f.own.assigned(flat(all), memberID, generation)
		}),
		kgo.BlockRebalanceOnPoll(), // nothing is given away between a poll and its end
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, all map[string][]int32) { f.own.gone("revoked", flat(all)) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, all map[string][]int32) { f.own.gone("lost", flat(all)) }),
		kgo.WithHooks(failures{}),
	}
	if c.Instance != "" {
		options = append(options, kgo.InstanceID(c.Instance))
	}
	if c.Pattern != "" {
		options = append(options, kgo.ConsumeTopics(c.Pattern), kgo.ConsumeRegex())
	} else {
		options = append(options, kgo.ConsumeTopics(c.Topics...))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		say("error", map[string]any{"error": err.Error()})
		return
	}
	f.client = client
	go f.poll()
}

type failures struct{}

// OnGroupManageError tells of a refusal of the group.
func (failures) OnGroupManageError(err error) { say("error", map[string]any{"error": name(err)}) }

func name(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

func word(err error) any {
	if err == nil {
		return nil
	}
	return name(err)
}

func (f *franz) poll() {
	for {
		fetches := f.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachRecord(func(r *kgo.Record) { f.own.record(r.Topic, r.Partition, r.Offset, r.Value) })
		f.client.AllowRebalance()
	}
}

func (f *franz) commit(c command) {
	offsets := f.own.toCommit(c)
	var err error
	if len(offsets) > 0 {
		wanted := map[string]map[int32]kgo.EpochOffset{}
		commit := kadm.Offsets{}
		for _, o := range offsets {
			if wanted[o.topic] == nil {
				wanted[o.topic] = map[int32]kgo.EpochOffset{}
			}
			wanted[o.topic][o.partition] = kgo.EpochOffset{Epoch: -1, Offset: o.offset}
			commit.Add(kadm.Offset{Topic: o.topic, Partition: o.partition, At: o.offset, LeaderEpoch: -1, Metadata: o.metadata})
		}
		err = f.commitAs(commit)
	}
	say("committed", map[string]any{"offsets": offsets, "error": word(err)})
}

func (f *franz) committed(c command) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	found, err := kadm.NewClient(f.client).FetchOffsets(ctx, f.group)
	all := []offset{}
	for _, p := range partitionsOf(c) {
		one := offset{p, -1, ""}
		if o, ok := found.Lookup(p.topic, p.partition); ok {
			one.offset, one.metadata = o.At, o.Metadata
		}
		all = append(all, one)
	}
	say("offsets", map[string]any{"offsets": all, "error": word(err)})
}

func (f *franz) admin(c command) {
	client, _ := kgo.NewClient(kgo.SeedBrokers(f.bootstrap))
	defer client.Close()
	answer, err := f.ask(kadm.NewClient(client), c)
	say("admin", map[string]any{"what": c.What, "answer": answer, "error": word(err)})
}

func (f *franz) ask(admin *kadm.Client, c command) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch c.What {
	case "list":
		listed, err := admin.ListGroups(ctx)
		found := [][]any{}
		for _, g := range listed.Sorted() {
			found = append(found, []any{g.Group, g.State})
		}
		return found, err
	case "describe":
		all, err := admin.DescribeGroups(ctx, c.Group)
		if err == nil {
			err = all[c.Group].Err
		}
		return map[string]any{"state": all[c.Group].State, "members": len(all[c.Group].Members)}, err
	case "delete":
		all, err := admin.DeleteGroups(ctx, c.Group)
		if err == nil {
			err = all[c.Group].Err
		}
		return nil, err
	case "offsets":
		all, err := admin.FetchOffsets(ctx, c.Group)
		found := []offset{}
		for _, o := range all.Sorted() {
			found = append(found, offset{part{o.Topic, o.Partition}, o.At, o.Metadata})
		}
		return found, err
	case "alter":
		wanted := kadm.Offsets{}
		for _, o := range offsetsOf(c) {
			wanted.Add(kadm.Offset{Topic: o.topic, Partition: o.partition, At: o.offset, LeaderEpoch: -1, Metadata: o.metadata})
		}
		done, err := admin.CommitOffsets(ctx, c.Group, wanted)
		if err == nil {
			err = done.Error()
		}
		return nil, err
	case "delete_offsets":
		gone := kadm.TopicsSet{}
		for _, p := range partitionsOf(c) {
			gone.Add(p.topic, p.partition)
		}
		done, err := admin.DeleteOffsets(ctx, c.Group, gone)
		if err == nil {
			err = done.Error()
		}
		return nil, err
	}
	return nil, errors.New("unsupported")
}

func (f *franz) close() {
	if f.client != nil {
		f.client.CloseAllowingRebalance()
	}
}
