package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitAs commits as the member that this client is, and waits for the answer.
func (f *franz) commitAs(commit kadm.Offsets) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for t := range request.Topics {
			topic := &request.Topics[t]
			for p := range topic.Partitions {
				if one, ok := commit.Lookup(topic.Topic, topic.Partitions[p].Partition); ok {
					metadata := one.Metadata
					topic.Partitions[p].Metadata = &metadata
				}
			}
		}
		return nil
	})
	wanted := map[string]map[int32]kgo.EpochOffset{}
	commit.Each(func(o kadm.Offset) {
		if wanted[o.Topic] == nil {
			wanted[o.Topic] = map[int32]kgo.EpochOffset{}
		}
		wanted[o.Topic][o.Partition] = kgo.EpochOffset{Epoch: -1, Offset: o.At}
	})
	var failed error
	f.client.CommitOffsetsSync(ctx, wanted, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if answer == nil {
			return
		}
		for _, topic := range answer.Topics {
			for _, p := range topic.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && failed == nil {
					failed = err
				}
			}
		}
	})
	return failed
}
