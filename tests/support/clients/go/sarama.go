package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramaMember struct {
	bootstrap string
	own       *owned
	group     string
	consumer  sarama.ConsumerGroup
	client    sarama.Client
	cancel    context.CancelFunc
	done      chan struct{}
	lock      sync.Mutex
	session   sarama.ConsumerGroupSession
}

func newSarama(bootstrap string, own *owned) member {
	return &saramaMember{bootstrap: bootstrap, own: own}
}

func (s *saramaMember) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_0_0_0
	config.Metadata.RefreshFrequency = time.Second
	config.ClientID = "sarama"
	return config
}

func (s *saramaMember) subscribe(c command) {
	config := s.config()
	strategies := map[string]sarama.BalanceStrategy{
		"": sarama.NewBalanceStrategyRange(), "range": sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(), "sticky": sarama.NewBalanceStrategySticky(),
	}
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[c.Strategy]}
	config.Consumer.Group.Session.Timeout = time.Duration(c.SessionMs) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.Timeout = 30 * time.Second
	config.Consumer.Group.InstanceId = c.Instance
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if c.Reset == "latest" {
		config.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	s.group = c.Group
	client, err := sarama.NewClient([]string{s.bootstrap}, config)
	if err == nil {
		s.client = client
		s.consumer, err = sarama.NewConsumerGroupFromClient(c.Group, client)
	}
	if err != nil {
		say("error", map[string]any{"error": err.Error()})
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		for err := range s.consumer.Errors() {
			say("error", map[string]any{"error": err.Error()})
		}
	}()
	go func() {
		defer close(s.done)
		for ctx.Err() == nil {
			if err := s.consumer.Consume(ctx, c.Topics, s); err != nil {
				say("error", map[string]any{"error": err.Error()})
				if errors.Is(err, sarama.ErrClosedConsumerGroup) || errors.Is(err, sarama.ErrFencedInstancedId) {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
}

// Setup is called when a generation begins.
func (s *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	s.lock.Lock()
	s.session = session
	s.lock.Unlock()
	s.own.assigned(flat(session.Claims()), session.MemberID(), session.GenerationID())
	return nil
}

// Cleanup is called when a generation ends.
func (s *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	s.own.gone("revoked", flat(session.Claims()))
	return nil
}

// ConsumeClaim reads one partition.
func (s *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			s.own.record(message.Topic, message.Partition, message.Offset, message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

// A commit of Sarama's session tells nothing of its fate; the request is made as its member.
func (s *saramaMember) commit(c command) {
	offsets := s.own.toCommit(c)
	s.lock.Lock()
	session := s.session
	s.lock.Unlock()
	var err error
	if len(offsets) > 0 && session != nil {
		err = s.commitAs(session.MemberID(), session.GenerationID(), offsets)
	}
	say("committed", map[string]any{"offsets": offsets, "error": text(err)})
}

func (s *saramaMember) commitAs(memberID string, generation int32, offsets []offset) error {
	coordinator, err := s.client.Coordinator(s.group)
	if err != nil {
		return err
	}
	request := &sarama.OffsetCommitRequest{
		Version: 7, ConsumerGroup: s.group, ConsumerID: memberID, ConsumerGroupGeneration: generation,
	}
	if id := s.client.Config().Consumer.Group.InstanceId; id != "" {
		request.GroupInstanceId = &id
	}
	for _, o := range offsets {
		request.AddBlockWithLeaderEpoch(o.topic, o.partition, o.offset, -1, 0, o.metadata)
	}
	answer, err := coordinator.CommitOffset(request)
	if err != nil {
		_ = s.client.RefreshCoordinator(s.group)
		return err
	}
	for _, partitions := range answer.Errors {
		for _, code := range partitions {
			if code != sarama.ErrNoError {
				return code
			}
		}
	}
	return nil
}

func (s *saramaMember) committed(c command) {
	all := []offset{}
	admin, err := sarama.NewClusterAdmin([]string{s.bootstrap}, s.config())
	if err == nil {
		defer admin.Close()
		asked := map[string][]int32{}
		for _, p := range partitionsOf(c) {
			asked[p.topic] = append(asked[p.topic], p.partition)
		}
		var found *sarama.OffsetFetchResponse
		found, err = admin.ListConsumerGroupOffsets(s.group, asked)
		if err == nil {
			for _, p := range partitionsOf(c) {
				block := found.GetBlock(p.topic, p.partition)
				all = append(all, offset{p, block.Offset, block.Metadata})
			}
		}
	}
	say("offsets", map[string]any{"offsets": all, "error": text(err)})
}

func (s *saramaMember) admin(c command) {
	admin, err := sarama.NewClusterAdmin([]string{s.bootstrap}, s.config())
	var answer any
	if err == nil {
		answer, err = ask(admin, c)
		admin.Close()
	}
	say("admin", map[string]any{"what": c.What, "answer": answer, "error": text(err)})
}

func ask(admin sarama.ClusterAdmin, c command) (any, error) {
	switch c.What {
	case "list":
		listed, err := admin.ListConsumerGroups()
		found := [][]any{}
		for group := range listed {
			found = append(found, []any{group, nil})
		}
		return found, err
	case "describe":
		all, err := admin.DescribeConsumerGroups([]string{c.Group})
		if err != nil {
			return nil, err
		}
		return map[string]any{"state": all[0].State, "members": len(all[0].Members)}, nil
	case "delete":
		return nil, admin.DeleteConsumerGroup(c.Group)
	case "offsets":
		all, err := admin.ListConsumerGroupOffsets(c.Group, nil)
		found := []offset{}
		if err == nil {
			for topic, partitions := range all.Blocks {
				for p, block := range partitions {
					found = append(found, offset{part{topic, p}, block.Offset, block.Metadata})
				}
			}
		}
		return found, err
	case "delete_offsets":
		for _, p := range partitionsOf(c) {
			if err := admin.DeleteConsumerGroupOffset(c.Group, p.topic, p.partition); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	return nil, errors.New("unsupported")
}

func (s *saramaMember) close() {
	if s.consumer == nil {
		return
	}
	s.cancel()
	<-s.done
	s.consumer.Close()
	s.client.Close()
}
