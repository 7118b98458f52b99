// Draws the state of a node. All text that comes from it is set as text, never as markup.
"use strict";

const STATE = "/console/state.json";
const POLL_MS = 2000;
const ANSWER_MS = 10000;
const TURN_MS = 8; // of drawing, before the browser may do other things
const AXIS = 1000; // units of the drawing's width
const SVG = "http://www.w3.org/2000/svg";
const SIGNS = { green: "●", yellow: "▲", red: "■" };

const CHARTS = [
  { title: "bytes in and out per second", unit: bytes, lines: [["bytes_in", "in"], ["bytes_out", "out"]] },
  { title: "messages in per second", unit: number, lines: [["messages_in", "in"]] },
  { title: "partition requests per second", unit: number,
    lines: [["produce_requests", "produce"], ["fetch_requests", "fetch"]] },
  { title: "failed requests per second", unit: number, seldom: true,
    lines: [["failed_produce", "produce"], ["failed_fetch", "fetch"]] },
  { title: "remote tier bytes per second", unit: bytes, tier: true,
    lines: [["remote_copy_bytes", "copy"], ["remote_fetch_bytes", "fetch"]] },
  { title: "replication bytes per second", unit: bytes, seldom: true,
    lines: [["replication_bytes_in", "in"], ["replication_bytes_out", "out"]] },
];
const rows = new Map(); // of partitions and topics, by key
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
let newest = null;
let answeredAt = 0;
let drawing = null;

function byId(id) { return document.getElementById(id); }

// Other people's text with what would turn it round, or cannot be seen, as an escape: \u202e.
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = visible(String(text));
  return made;
}

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// What is the same is left alone: a change costs layout.
function say(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

function number(value) { return plain.format(value); }

function count(value, one, many) { return `${number(value)} ${value === 1 ? one : many}`; }

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let power = 0;
  while (value >= 1000 && power < units.length - 1) { value /= 1000; power += 1; }
  return `${number(value)} ${units[power]}`;
}

// -- the parts of the page

function drawHead(state) {
  const health = state.health;
  say(byId("who"), `${state.kind} ${state.node_id}, version ${state.version || "unknown"}, ${health.stage}`);
  const status = byId("status");
  status.className = health.status;
  say(status, `${SIGNS[health.status] || ""} ${health.status}`);
  document.title = `Tidemark ${state.node_id}: ${health.status}`;
  const lines = health.reasons.map((one) => {
    const line = make("li");
    line.append(make("strong", one.status, `${SIGNS[one.status] || ""} ${one.part}: `), make("span", "name", one.text));
    if (one.remedy) line.append(make("span", "remedy", `What to do: ${one.remedy}.`));
    return line;
  });
  if (health.more_reasons) lines.push(make("li", "", `and ${health.more_reasons} more`));
  if (!lines.length) lines.push(make("li", "quiet", `all parts are green: ${Object.keys(health.parts).join(", ") || "none yet"}`));
  byId("reasons").replaceChildren(...lines);
  byId("notes").replaceChildren(...health.notes.map((line) => make("li", "name", line)));
}

function known(values) { return values.filter((value) => value !== null); }

function drawCharts(state) {
  const moves = (one) => one.lines.some(([name]) => known(state.rates[name]).some((rate) => rate > 0));
  const charts = CHARTS.filter((one) => (!one.tier || state.tier) && (!one.seldom || moves(one)));
  byId("rates-section").hidden = state.kind === "controller";
  byId("charts").replaceChildren(...charts.map((one) => chart(one, state)));
}

function chart(spec, state) {
  const values = spec.lines.map(([name]) => state.rates[name] || []);
  const top = Math.max(...values.flatMap(known), 0);
  const most = 59;
  const drawn = shape("svg", { class: "chart", viewBox: "0 0 590 100", preserveAspectRatio: "none", role: "img" });
  drawn.setAttribute("aria-label", spec.title);
  values.forEach((line, index) => {
    let path = "", on = false;
    line.forEach((value, place) => {
      if (value === null) { on = false; return; }
      const x = (place + most - line.length) * 10, y = 98 - (top ? (value / top) * 94 : 0);
      path += `${on ? "L" : "M"}${x} ${y.toFixed(1)}h10`;
      on = true;
    });
    drawn.append(shape("path", { class: index ? "second" : "first", d: path || "M0 98" }));
  });
  const figure = make("figure");
  const caption = make("figcaption", "", spec.title);
  const nowLine = make("div", "quiet keys");
  spec.lines.forEach(([, label], index) => {
    const last = values[index].at(-1);
    const text = `${index ? "┅" : "━"} ${label} ${last === undefined || last === null ? "-" : spec.unit(last)}`;
    nowLine.append(make("span", index ? "second-key" : "first-key", text));
  });
  nowLine.append(make("span", "", `max ${spec.unit(top)}`));
  figure.append(caption, drawn, nowLine);
  return figure;
}

function drawTier(state) {
  const tier = state.tier;
  byId("tier-section").hidden = !tier;
  if (!tier) return;
  say(byId("tier-process"), `tier process ${tier.process}` + (tier.pid > 0 ? `, pid ${tier.pid}` : "")
    + `, restarted ${count(tier.restarts, "time", "times")}`
    + (tier.process === "up" ? `; ${number(tier.ready)} of ${count(tier.assigned, "partition", "partitions")} ready` : ""));
  const grown = state.increases;
  const copied = grown.remote_copy_requests - grown.remote_copy_errors;
  const deleted = grown.remote_delete_requests - grown.remote_delete_errors;
  const activity = [
    ["segments copied", copied, grown.remote_copy_errors, -1],
    ["segments deleted", deleted, grown.remote_delete_errors, -1],
    ["remote fetches", grown.remote_fetches, grown.remote_fetch_errors, grown.remote_fetch_expired],
  ];
  byId("tier-activity").replaceChildren(...activity.map(([title, done, failed, late]) => {
    const line = cells(make("tr"), [title, Math.max(done, 0), failed ? `■ ${number(failed)}` : 0, late]);
    if (failed) line.children[2].className = "number red";
    return line;
  }));
}

function cells(line, values) {
  for (const value of values) {
    const isNumber = typeof value === "number";
    line.append(make("td", isNumber ? "number" : "name", isNumber ? (value < 0 ? "-" : number(value)) : value));
  }
  return line;
}

function drawGroups(state) {
  const isOneOfMore = state.brokers.length > 1, isBroker = state.kind === "broker";
  byId("groups-section").hidden = !isBroker || !(state.groups.length || isOneOfMore);
  byId("groups-table").hidden = !state.groups.length;
  const isPart = (one) => one.lag >= 0 && one.lag_partitions < one.offsets, left = [];
  byId("groups").replaceChildren(...state.groups.map((one) => {
    const line = cells(make("tr"), [one.group, one.lag, one.state, one.members, one.offsets]);
    if (isPart(one)) say(line.children[1], `≥ ${number(one.lag)}`);
    return line;
  }));
  if (state.groups.some(isPart)) left.push("≥: lag on this broker alone; other brokers have other partitions of the group.");
  if (state.more_groups) left.push(`${count(state.more_groups, "more group is", "more groups are")} not shown.`);
  if (isOneOfMore) left.push(`${state.groups.length ? "These groups have" : "No group has"} this broker as coordinator; the other brokers' pages show theirs.`);
  if (!state.offsets_are_whole) left.push("Not all committed offsets are counted: a lag may be higher.");
  say(byId("more-groups"), left.join(" "));
}

function drawNodes(state) {
  byId("brokers").replaceChildren(...state.brokers.map((one) => {
    const condition = one.in_controlled_shutdown ? "controlled shutdown" : one.fenced ? "■ fenced" : "● unfenced";
    return cells(make("tr"), [String(one.id), condition, one.endpoints.join(", "), one.rack, one.has_tier ? "yes" : "no"]);
  }));
  say(byId("more-brokers"), state.more_brokers ? "More brokers are not shown." : "");
  const quorum = state.quorum;
  byId("quorum-table").hidden = !quorum;
  if (!quorum) return;
  const leader = quorum.leader < 0 ? "no leader is known" : `leader is node ${quorum.leader}`;
  say(byId("quorum"), `Metadata quorum: ${leader}, leader epoch ${quorum.epoch}, high watermark ${number(quorum.high_watermark)}`
    + (quorum.is_leader ? "" : "; only the leader's page shows the others' lag"));
  const line = (one, vote) => cells(make("tr"), [String(one.id), vote, one.log_end, one.behind]);
  byId("voters").replaceChildren(...quorum.voters.map((one) => line(one, one.id === quorum.leader ? "leader" : "follower")),
    ...quorum.observers.map((one) => line(one, "observer")));
}

// -- partitions, some in a turn

function headingRow(text, isUnhealthy) {
  const key = `${isUnhealthy ? "u" : "t"} ${text}`;
  let row = rows.get(key);
  if (!row) {
    row = make("h3");
    row.append(make("span", isUnhealthy ? "red name" : "name", text), make("span", "quiet"));
    rows.set(key, row);
  }
  return [key, row];
}

// Of those that are shown, by heading.
function sumsOf(partitions) {
  const sums = new Map();
  for (const one of partitions) {
    const heading = headingOf(one), found = sums.get(heading) || { partitions: 0, size: 0, lag: -1 };
    found.partitions += 1;
    found.size += one.size_bytes;
    if (one.lag >= 0) found.lag = Math.max(found.lag, 0) + one.lag;
    sums.set(heading, found);
  }
  return sums;
}

function headingOf(one) { return one.problem ? "■ unhealthy" : one.topic; }

function partitionRow(one) {
  const key = `p ${one.partition} ${one.topic}`;
  let row = rows.get(key);
  if (!row) {
    row = make("div", "partition");
    const head = make("div", "head"), bars = make("div", "bars"), labels = make("div", "labels");
    row.parts = {
      title: make("strong"), role: make("span"), problem: make("span", "red name"), lag: make("span"),
      drawn: shape("svg", { viewBox: `0 0 ${AXIS} 30`, preserveAspectRatio: "none", role: "img" }),
      remoteLabel: make("span", "", "remote"), numbers: make("div", "numbers quiet"), groups: make("div", "numbers groups"),
    };
    const parts = row.parts;
    head.append(parts.title, parts.role, parts.lag, parts.problem);
    labels.append(parts.remoteLabel, make("span", "", "local"));
    bars.append(labels, parts.drawn);
    row.append(head, bars, parts.numbers, parts.groups);
    rows.set(key, row);
  }
  const mark = JSON.stringify(one);
  if (row.mark !== mark) { row.mark = mark; fill(row.parts, one); }
  return [key, row];
}

function fill(parts, one) {
  say(parts.title, `${one.topic}-${one.partition}`);
  say(parts.role, one.led ? `leader, ${one.isr} of ${one.replicas} replicas in sync` : one.leader < 0 ? "" : `follower, leader is broker ${one.leader}`);
  say(parts.problem, one.problem ? `■ ${one.problem}` : "");
  say(parts.lag, one.lag < 0 ? "" : `lag ${number(one.lag)}`);
  say(parts.remoteLabel, one.tiered ? "remote" : "");
  const said = [`log start offset ${number(one.log_start)}`];
  if (one.tiered) {
    said.push(one.copied_end < 0 ? "no segment copied yet" : `highest copied offset ${number(one.copied_end - 1)}`);
    said.push(`local log start offset ${number(one.local_start)}`);
  }
  said.push(`log end offset ${number(one.log_end)}`);
  if (one.committed_end < one.log_end) said.push(`high watermark ${number(one.committed_end)}`);
  said.push(`${bytes(one.size_bytes)} on local disk`);
  say(parts.numbers, one.log_end < 0 ? "" : said.join(" · "));
  const groups = one.groups.map((group) => {
    const line = make("span");
    line.append(make("span", "mark", "┃ "), make("span", "name", group.group),
      `: committed offset ${number(group.offset)}` + (group.lag < 0 ? "" : `, lag ${number(group.lag)}`));
    return line;
  });
  if (one.more_groups) groups.push(make("span", "", `and ${count(one.more_groups, "group", "groups")} more`));
  parts.groups.replaceChildren(...groups);
  parts.drawn.replaceChildren(...bars(one));
  parts.drawn.setAttribute("aria-label", said.join(", "));
}

function bars(one) {
  const low = one.log_start, length = one.log_end - low;
  const drawn = [shape("path", { class: "axis", d: `M0 29H${AXIS}` })];
  if (one.log_end < 0 || length <= 0) return drawn;
  const place = (offset) => Math.min(Math.max((offset - low) / length, 0), 1) * AXIS;
  const bar = (from, end, y, name) => {
    const x = place(from), width = Math.max(place(end) - x, 2);
    if (end > from) drawn.push(shape("rect", { class: name, x: Math.min(x, AXIS - width), y, width, height: 11 }));
  };
  if (one.tiered && one.copied_end > 0) bar(low, one.copied_end, 1, "remote");
  bar(one.local_start, one.log_end, 16, "local");
  for (const group of one.groups) {
    const x = place(group.offset).toFixed(1), line = shape("path", { class: "group", d: `M${x} 0V30` });
    const title = shape("title", {});
    say(title, `${group.group}: committed offset ${number(group.offset)}`);
    line.append(title);
    drawn.push(line);
  }
  return drawn;
}

function* drawPartitions(state) {
  const wanted = byId("filter").value.trim().toLowerCase(), withInternal = byId("internal").checked;
  const container = byId("partitions"), kept = new Set(), sums = sumsOf(state.partitions);
  let at = container.firstChild, heading = null, shownCount = 0;
  const put = ([key, row]) => {
    kept.add(key);
    if (row === at) at = at.nextSibling;
    else container.insertBefore(row, at);
  };
  for (const one of state.partitions) {
    const isWanted = wanted ? one.topic.toLowerCase().includes(wanted) : !one.internal || withInternal || one.problem;
    if (!isWanted) continue;
    const text = headingOf(one);
    if (text !== heading) {
      heading = text;
      const placed = headingRow(text, Boolean(one.problem)), sum = sums.get(text);
      say(placed[1].lastChild, ` ${count(sum.partitions, "partition", "partitions")}, ${bytes(sum.size)} on local disk`
        + (sum.lag < 0 ? "" : `, total lag ${number(sum.lag)}`));
      put(placed);
    }
    put(partitionRow(one));
    shownCount += 1;
    yield;
  }
  for (const [key, row] of rows) {
    if (!kept.has(key)) { row.remove(); rows.delete(key); yield; }
  }
  const all = state.sums;
  byId("partitions-section").hidden = state.kind === "controller";
  say(byId("sums"), `${count(all.partitions, "partition", "partitions")} on this broker: leader of ${number(all.led)}, ${number(all.tiered)} tiered, `
    + `${all.ill ? `■ ${number(all.ill)} unhealthy` : "0 unhealthy"}, ${bytes(all.local_bytes)} on local disk; ${number(shownCount)} shown`);
  say(byId("more-partitions"), state.more_partitions ? `${count(state.more_partitions, "more partition is", "more partitions are")} not shown: unhealthy ones come first, then the largest lag, then the latest change.` : "");
}

function draw(state) {
  drawing = parts(state);
  turn();
}

function* parts(state) {
  for (const part of [drawHead, drawCharts, drawTier, drawGroups, drawNodes]) { part(state); yield; }
  yield* drawPartitions(state);
  document.body.dataset.drawn = String(state.time_ms);
}

let isTurning = false;

function turn() {
  if (isTurning || !drawing) return;
  const ends = performance.now() + TURN_MS;
  while (performance.now() < ends) {
    if (drawing.next().done) { drawing = null; return; }
  }
  isTurning = true;
  setTimeout(() => { isTurning = false; turn(); }, 0);
}

// -- asking

async function ask() {
  try {
    const answer = await fetch(STATE, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) throw new Error(await answer.text());
    newest = await answer.json();
    answeredAt = Date.now();
    byId("away").hidden = true;
    draw(newest);
  } catch (error) {
    const since = answeredAt ? ` for ${Math.round((Date.now() - answeredAt) / 1000)} s; the values below are that old` : "";
    say(byId("away"), `This node does not answer${since}. (${error.message})`);
    byId("away").hidden = false;
    const status = byId("status");
    status.className = "red";
    say(status, "■ no answer");
    document.title = document.title.replace(/(:.*)?$/, ": no answer");
  }
}

async function poll() {
  if (!document.hidden) await ask();
  setTimeout(poll, POLL_MS);
}

for (const id of ["filter", "internal"]) {
  byId(id).addEventListener("input", () => { if (newest) draw(newest); });
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
poll();
