// kafkajs as a member of a group; ../README.md has the protocol.
import kafkajs from 'kafkajs'
import { Owned, obey, say, word } from './wire.mjs'

const { Kafka, logLevel } = kafkajs
const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100, retries: 60, maxRetryTime: 1000 } })
const owned = new Owned()
let consumer, group

obey({
  async subscribe (command) {
    group = command.group
    consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: command.session_ms ?? 6000,
      rebalanceTimeout: 30000,
      heartbeatInterval: 500,
      metadataMaxAge: 1000,
      maxWaitTimeInMs: 200
    })
    const { REBALANCING, GROUP_JOIN, CRASH } = consumer.events
    consumer.on(REBALANCING, () => owned.gone('revoked'))
    consumer.on(GROUP_JOIN, ({ payload }) => {
      owned.gone('revoked')
      const given = Object.entries(payload.memberAssignment)
      owned.assigned(given.flatMap(([topic, partitions]) => partitions.map(one => [topic, one])))
    })
    consumer.on(CRASH, ({ payload }) => say('error', { error: word(payload.error) }))
    await consumer.connect()
    const topics = command.pattern ? [new RegExp(command.pattern)] : command.topics
    await consumer.subscribe({ topics, fromBeginning: command.reset !== 'latest' })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) =>
        owned.record(topic, partition, message.offset, message.value)
    })
  },

  async commit (command) {
    const offsets = owned.toCommit(command)
    let error = null
    try {
      const asked = offsets.map(([topic, partition, offset, metadata]) => ({ topic, partition, offset: String(offset), metadata }))
      if (asked.length > 0) await consumer.commitOffsets(asked)
    } catch (refused) {
      error = word(refused)
    }
    say('committed', { offsets, error })
  },

  async committed (command) {
    const found = await withAdmin(admin => admin.fetchOffsets({ groupId: group, topics: [...new Set(command.partitions.map(one => one[0]))] }))
    const all = command.partitions.map(([topic, partition]) => {
      const one = found.find(each => each.topic === topic).partitions.find(each => each.partition === partition)
      return [topic, partition, Number(one?.offset ?? -1), one?.metadata ?? '']
    })
    say('offsets', { offsets: all })
  },

  async admin (command) {
    let answer = null
    let error = null
    try {
      answer = await withAdmin(admin => ask(admin, command))
    } catch (refused) {
      error = word(refused)
    }
    if (answer === 'unsupported') [answer, error] = [null, 'unsupported']
    say('admin', { what: command.what, answer, error })
  },

  async close () {
    if (consumer) await consumer.disconnect()
  }
})

async function withAdmin (work) {
  const admin = kafka.admin({ retry: { retries: 3 } })
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

async function ask (admin, command) {
  const groupId = command.group
  switch (command.what) {
    case 'list':
      return (await admin.listGroups()).groups.map(one => [one.groupId, null])
    case 'describe': {
      const [one] = (await admin.describeGroups([groupId])).groups
      return { state: one.state, members: one.members.length }
    }
    case 'delete':
      await admin.deleteGroups([groupId])
      return null
    case 'offsets': {
      const found = await admin.fetchOffsets({ groupId })
      return found.flatMap(({ topic, partitions }) => partitions.map(one => [topic, one.partition, Number(one.offset), one.metadata]))
    }
    case 'alter':
      for (const [topic, partition, offset] of command.offsets) {
        await admin.setOffsets({ groupId, topic, partitions: [{ partition, offset: String(offset) }] })
      }
      return null
  }
  return 'unsupported'
}
