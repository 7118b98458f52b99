// @platformatic/kafka as a member of a group; ../README.md has the protocol.
import { Admin, Consumer } from '@platformatic/kafka'
import { Owned, obey, say, word } from './wire.mjs'

const bootstrapBrokers = [process.argv[2]]
const owned = new Owned()
let consumer, stream

obey({
  async subscribe (command) {
    consumer = new Consumer({
      clientId: 'platformatic',
      groupId: command.group,
      bootstrapBrokers,
      retries: 60,
      retryDelay: 200,
      metadataMaxAge: 1000
    })
    consumer.on('consumer:group:rebalance', () => owned.gone('revoked'))
    consumer.on('consumer:group:join', ({ assignments }) => {
      owned.gone('revoked')
      owned.assigned((assignments ?? []).flatMap(({ topic, partitions }) => partitions.map(one => [topic, one])))
    })
    consumer.on('consumer:heartbeat:error', ({ error }) => say('error', { error: word(error) }))
    stream = await consumer.consume({
      topics: command.topics,
      mode: 'committed',
      fallbackMode: command.reset === 'latest' ? 'latest' : 'earliest',
      autocommit: false,
      sessionTimeout: command.session_ms ?? 6000,
      rebalanceTimeout: 30000,
      heartbeatInterval: 500,
      maxWaitTime: 200,
      ...(command.instance ? { groupInstanceId: command.instance } : {})
    })
    stream.on('data', ({ topic, partition, offset, value }) => owned.record(topic, partition, offset, value))
    stream.on('error', error => say('error', { error: word(error) }))
  },

  async commit (command) {
    const offsets = owned.toCommit(command)
    let error = null
    try {
      const asked = offsets.map(([topic, partition, offset]) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: -1 }))
      if (asked.length > 0) await consumer.commit({ offsets: asked })
    } catch (refused) {
      error = word(refused)
    }
    say('committed', { offsets, error })
  },

  async committed (command) {
    const topics = [...new Set(command.partitions.map(one => one[0]))]
    const count = topic => Math.max(...command.partitions.filter(one => one[0] === topic).map(one => one[1])) + 1
    const found = await consumer.listCommittedOffsets({
      topics: topics.map(topic => ({ topic, partitions: [...Array(count(topic)).keys()] }))
    })
    say('offsets', { offsets: command.partitions.map(([topic, partition]) => [topic, partition, Number(found.get(topic)[partition]), '']) })
  },

  async admin (command) {
    const admin = new Admin({ clientId: 'admin', bootstrapBrokers, retries: 0 })
    let answer = null
    let error = null
    try {
      answer = await ask(admin, command)
    } catch (refused) {
      error = word(refused)
    } finally {
      await admin.close()
    }
    say('admin', { what: command.what, answer, error })
  },

  async close () {
    if (stream) await stream.close()
    if (consumer) await consumer.close(true)
  }
})

async function ask (admin, command) {
  const groupId = command.group
  switch (command.what) {
    case 'list':
      return [...(await admin.listGroups()).values()].map(one => [one.id, one.state])
    case 'describe': {
      const one = (await admin.describeGroups({ groups: [groupId] })).get(groupId)
      return { state: one.state.replaceAll('_', ''), members: one.members.size }
    }
    case 'delete':
      await admin.deleteGroups({ groups: [groupId] })
      return null
    case 'offsets': {
      const [one] = await admin.listConsumerGroupOffsets({ groups: [groupId] })
      return one.topics.flatMap(({ name, partitions }) =>
        partitions.map(each => [name, each.partitionIndex, Number(each.committedOffset), each.metadata]))
    }
    case 'alter': {
      const topics = command.offsets.map(([name, partition, offset]) => ({ name, partitionOffsets: [{ partition, offset: BigInt(offset) }] }))
      await admin.alterConsumerGroupOffsets({ groupId, topics })
      return null
    }
    case 'delete_offsets': {
      const topics = command.partitions.map(([name, partition]) => ({ name, partitionIndexes: [partition] }))
      await admin.deleteConsumerGroupOffsets({ groupId, topics })
      return null
    }
  }
  return null
}
