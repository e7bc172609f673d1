// A debugging session by the client of @vscode/debugadapter-testsupport.
// Usage: node client.js PLAN.json. The plan has how the adapter starts, the launch and what to do; standard output gets
// each message of the protocol as a line of JSON.
"use strict";
const fs = require("fs");
const { DebugClient } = require("@vscode/debugadapter-testsupport");

class Logged extends DebugClient {
  doSend(command, given, done) {
    const seq = this.sequence;
    this.log({ seq, type: "request", command, ...(given && Object.keys(given).length ? { arguments: given } : {}) });
    super.doSend(command, given, done);
  }
  dispatch(text) {
    this.log(JSON.parse(text));
    super.dispatch(text);
  }
  log(message) {
    fs.writeSync(1, JSON.stringify(message) + "\n");
  }
}

// All that a user sees at a stop.
async function look(client, threadId) {
  const threads = (await client.threadsRequest()).body.threads;
  const stack = (await client.stackTraceRequest({ threadId, startFrame: 0, levels: 20 })).body.stackFrames;
  const found = { threads: threads.map((t) => t.name), stack: stack.map((f) => [f.name, f.line]), scopes: {} };
  for (const scope of stack.length ? (await client.scopesRequest({ frameId: stack[0].id })).body.scopes : []) {
    const variables = (await client.variablesRequest({ variablesReference: scope.variablesReference })).body.variables;
    found.scopes[scope.name] = variables.map((v) => [v.name, v.value]);
    for (const v of variables.slice(0, 3))
      if (v.variablesReference) await client.variablesRequest({ variablesReference: v.variablesReference, start: 0, count: 4 });
  }
  return JSON.stringify(found);
}

async function main(plan) {
  const client = new Logged(plan.runtime, plan.executable, "mmulator");
  client.defaultTimeout = 120000;
  await client.start();
  let current = 0;
  client.on("stopped", (event) => (current = event.body.threadId));
  const shown = [];
  const move = async (command, given) => {
    await Promise.all([client.waitForEvent("stopped"), client.send(command, { threadId: current, ...given })]);
  };
  await client.hitBreakpoint(plan.launch, plan.breakpoint);
  shown.push(await look(client, current));
  for (const command of plan.forward) {
    await move(command, command === "continue" ? {} : { granularity: "instruction" });
    shown.push(await look(client, current));
  }
  for (let n = plan.forward.length - 1; n >= 0; n--) {
    if (plan.forward[n] === "continue") await move("reverseContinue", {});
    else await move("stepBack", { granularity: "instruction" });
    const again = await look(client, current);
    if (again !== shown[n]) throw new Error(`step ${n} differs:\n${again}\n${shown[n]}`);
  }
  if (new Set(shown).size !== shown.length) throw new Error("two steps look alike");
  const frame = (await client.stackTraceRequest({ threadId: current })).body.stackFrames[0];
  await client.evaluateRequest({ expression: plan.expression, frameId: frame.id, context: "hover" });
  await client.disassembleRequest({ memoryReference: frame.instructionPointerReference, instructionOffset: -2, instructionCount: 8 });
  await client.setBreakpointsRequest({ source: { path: plan.breakpoint.path }, breakpoints: [] });
  const ended = client.waitForEvent("terminated");
  await client.continueRequest({ threadId: current });
  await ended;
  await client.stop();
}

main(JSON.parse(fs.readFileSync(process.argv[2], "utf8"))).then(
  () => process.exit(0),
  (error) => {
    console.error(error.stack || error);
    process.exit(1);
  }
);
