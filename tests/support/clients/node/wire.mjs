// What both libraries share: commands from stdin, events to stdout, and what is read.
import { createInterface } from 'node:readline'

export function say (event, facts = {}) {
  process.stdout.write(JSON.stringify({ event, ...facts }) + '\n')
}

export class Owned {
  positions = new Map()
  read = new Map()

  list () {
    return [...this.read.values()].sort()
  }

  assigned (fresh) {
    for (const one of fresh) this.read.set(String(one), one)
    say('assigned', { new: fresh, owned: this.list() })
  }

  gone (event) {
    const gone = this.list()
    this.read.clear()
    this.positions.clear()
    if (gone.length > 0) say(event, { gone, owned: [] })
  }

  // A record that was read before its partition was given away is no longer a position.
  record (topic, partition, offset, value) {
    const at = String([topic, partition])
    if (this.read.has(at)) this.positions.set(at, [topic, partition, Number(offset) + 1, ''])
    say('record', { topic, partition, offset: Number(offset), value: value === null ? null : value.toString() })
  }

  toCommit (command) {
    return command.offsets ?? [...this.positions.values()]
  }
}

export function obey (handlers) {
  const lines = createInterface({ input: process.stdin })
  let last = Promise.resolve()
  const next = command => {
    last = last.then(async () => {
      try {
        await handlers[command.do](command)
      } catch (error) {
        say('error', { error: word(error) })
      }
      if (command.do === 'close') {
        say('closed')
        process.exit(0)
      }
    })
  }
  lines.on('line', line => next(JSON.parse(line)))
  lines.on('close', () => next({ do: 'close' }))
  process.on('unhandledRejection', error => say('error', { error: word(error) }))
  say('ready')
}

export function word (error) {
  const all = [error, ...(error?.errors ?? [])]
  const kafka = all.map(one => one?.type ?? one?.apiId ?? one?.code).filter(Boolean)
  return `${kafka.join(' ')} ${error?.message ?? error}`.trim()
}
