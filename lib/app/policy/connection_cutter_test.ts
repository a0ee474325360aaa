import { assert, assertEquals } from "@std/assert";
import {
  IPV4_PLAN,
  setClusterPolicy,
  setPod,
  setPolicy,
} from "../../../tests/support/builders/policy_objects.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { createConntrack } from "../../os/conntrack.ts";
import { PolicyPlanner } from "../../policy/policy_planner.ts";
import { PolicyState } from "../../policy/policy_state.ts";
import { ConnectionCutter } from "./connection_cutter.ts";

const WEB = "10.1.0.2";
const FRIEND = "10.1.0.3";
const OTHER = "10.1.0.4";
const NODE = "10.0.0.1";

/** A line of `conntrack -L`; the reply comes from `endpoint`. */
function line(
  from: string,
  to: string,
  { endpoint = to, port = 80, sport = 40_000 }: {
    readonly endpoint?: string;
    readonly port?: number;
    readonly sport?: number;
  } = {},
): string {
  return `tcp      6 431999 ESTABLISHED src=${from} dst=${to} sport=${sport} dport=${port} ` +
    `src=${endpoint} dst=${from} sport=80 dport=${sport} [ASSURED] mark=0 use=1\n`;
}

class Stage implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly commands = new FakeCommandRunner();
  readonly state = new PolicyState();
  readonly planner = new PolicyPlanner(this.state, IPV4_PLAN);
  /** The deletions, one line each. */
  readonly deleted: string[] = [];
  table = "";
  cut = 0;
  readonly #stop = new AbortController();
  readonly #cutter: ConnectionCutter;
  readonly #running: Promise<void>;

  constructor() {
    this.commands
      .on("conntrack -L", () => ({ stdout: this.table }))
      .on("conntrack -R", ({ stdin }) => {
        this.deleted.push(...stdin.trimEnd().split("\n"));
        return { stdout: stdin };
      });
    const { clock, logger } = this;
    this.#cutter = new ConnectionCutter(
      {
        ...{ clock, logger, conntrack: createConntrack(this.commands) },
        metrics: { connectionsCut: (_, count) => void (this.cut += count) },
      },
      "IPv4",
      (read) => Promise.resolve(read(this.planner.plan)),
      (address) => address === NODE,
    );
    this.#running = this.#cutter.run(this.#stop.signal);
    setPod(this.state, "default/web", { address: WEB, labels: { app: "web" } });
    setPod(this.state, "default/friend", { address: FRIEND, labels: { app: "friend" } });
    setPod(this.state, "default/other", { address: OTHER });
    this.allow("friend");
  }

  /** Only pods with this label may reach the web. */
  allow(app: string): void {
    setPolicy(this.state, "default/web", {
      podSelector: { matchLabels: { app: "web" } },
      policyTypes: ["Ingress"],
      ingress: [{ from: [{ podSelector: { matchLabels: { app } } }] }],
    });
  }

  /** A sync that succeeds. */
  async sync(): Promise<void> {
    const changes = this.planner.update();
    this.#cutter.synced(this.planner.plan, changes);
    await this.settled();
  }

  /** Lists of the table and deletions are processes, which take turns of the event loop. */
  async settled(): Promise<void> {
    for (let turn = 0; turn < 20; turn++) await settle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

Deno.test("ConnectionCutter deletes what the plan denies, and nothing else", async () => {
  await using stage = new Stage();
  stage.table = [
    line(FRIEND, WEB),
    line(OTHER, WEB),
    line(OTHER, WEB, { sport: 40_001 }),
    line(OTHER, "10.96.0.1", { endpoint: WEB, port: 8080 }),
    line(WEB, OTHER),
    line(NODE, WEB),
    line(OTHER, FRIEND),
    "icmp     1 29 src=10.1.0.4 dst=10.1.0.2 type=8 code=0 id=7 src=10.1.0.2 dst=10.1.0.4 type=0 code=0 id=7 mark=0 use=1\n",
  ].join("");
  await stage.sync();
  assertEquals(stage.deleted, [
    "-D -f ipv4 -p tcp --orig-src 10.1.0.4 --orig-dst 10.1.0.2 --reply-src 10.1.0.2 --orig-port-dst 80 --reply-port-src 80",
    "-D -f ipv4 -p tcp --orig-src 10.1.0.4 --orig-dst 10.96.0.1 --reply-src 10.1.0.2 --orig-port-dst 8080 --reply-port-src 80",
    "-D -f ipv4 -p icmp --orig-src 10.1.0.4 --orig-dst 10.1.0.2 --reply-src 10.1.0.2",
  ]);
  assertEquals(stage.cut, 3);
  assert(stage.logger.lines.some(({ message }) => message.startsWith("Cut connections")));
});

Deno.test("ConnectionCutter looks again when a set loses a member, and not when it gains one", async () => {
  await using stage = new Stage();
  await stage.sync();
  const looks = stage.commands.calls.length;
  setPod(stage.state, "default/third", { address: "10.1.0.9", labels: { app: "friend" } });
  await stage.sync();
  assertEquals(stage.commands.calls.length, looks);
  stage.table = line(FRIEND, WEB);
  setPod(stage.state, "default/friend", { address: FRIEND, labels: {} });
  await stage.sync();
  assertEquals(stage.deleted.length, 1);
});

Deno.test("ConnectionCutter looks again when a rule that denies gains a member, and for a later tier", async () => {
  await using stage = new Stage();
  stage.table = line(FRIEND, WEB);
  const from = (app: string) => [{
    pods: { namespaceSelector: {}, podSelector: { matchLabels: { app } } },
  }];
  setClusterPolicy(stage.state, "admin", {
    ingress: [{ action: "Deny", from: from("bad") }, { action: "Pass", from: from("old") }],
  });
  setPolicy(stage.state, "default/web", { podSelector: {}, ingress: [{}] });
  await stage.sync();
  setPod(stage.state, "default/friend", { address: FRIEND, labels: { app: "bad" } });
  await stage.sync();
  assertEquals(stage.deleted.length, 1);
  setClusterPolicy(stage.state, "admin", { ingress: [{ action: "Deny", from: from("bad") }] });
  stage.allow("friend");
  setPod(stage.state, "default/friend", { address: FRIEND, labels: { app: "friend" } });
  await stage.sync();
  setPod(stage.state, "default/friend", { address: FRIEND, labels: {} });
  await stage.sync();
  assertEquals(stage.deleted.length, 2);
});

Deno.test("ConnectionCutter tries again what failed, and complains once", async () => {
  await using stage = new Stage();
  stage.table = line(OTHER, WEB);
  stage.commands.failCall(1, { code: 1, stderr: "conntrack v1.4.7: busy" });
  stage.commands.failCall(2, { code: 1, stderr: "conntrack v1.4.7: busy" });
  await stage.sync();
  assertEquals(stage.deleted, []);
  await stage.clock.advance(1_000);
  await stage.clock.advance(2_000);
  await stage.settled();
  assertEquals(stage.deleted.length, 1);
  const warnings = stage.logger.lines.filter(({ level }) => level === "warn");
  assertEquals(warnings.length, 1);
});

Deno.test("ConnectionCutter deletes 500 kinds of connections in one run, and the rest in the next", async () => {
  await using stage = new Stage();
  const many = Array.from({ length: 700 }, (_, index) => line(OTHER, WEB, { port: index + 1 }));
  stage.table = many.join("");
  stage.commands.on("conntrack -R", ({ stdin }) => {
    const lines = stdin.trimEnd().split("\n");
    stage.deleted.push(...lines);
    stage.table = many.filter((_, index) =>
      !stage.deleted.some((text) => text.includes(`--orig-port-dst ${index + 1} `))
    ).join("");
    return { stdout: stdin };
  });
  await stage.sync();
  await eventually("all are deleted", () => new Set(stage.deleted).size === 700);
  const remaining = stage.logger.lines.map(({ fields }) => fields.remaining);
  assertEquals(remaining.filter((each) => each !== undefined), [200]);
});
