import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import {
  CommandError,
  type CommandOptions,
  type CommandResult,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";
import { type Network, systemNetwork } from "../../../lib/os/network.ts";
import { TraceError, type WatchedPacket } from "../../../lib/proxy/packet_trace.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { startNftWatch } from "./nft_watch.ts";

const PACKET: WatchedPacket = {
  family: "IPv4",
  from: undefined,
  sourcePort: parsePort(4000),
  to: parseIpAddress("10.96.0.1"),
  port: parsePort(80),
  protocol: "TCP",
  comesFrom: "this machine",
};

/** `nft` and its parent process, while they are running. */
class FakeNft implements CommandRunner {
  readonly running = new Set<string>();
  /** What was written. */
  readonly texts: string[] = [];
  /** The answer to the trial of the table. */
  trial: CommandResult = { code: 0, stdout: "", stderr: "" };
  /** Whether the monitor reports marked packets. */
  sees = true;
  /** The command lines that end at once. */
  monitorEnds: readonly string[] = [];
  /** Whether the monitor was started before the table was there. */
  monitorsNothing = false;
  /** Whether the rule that marks the packet came before the monitor reported an event. */
  marksUnseen = false;
  /** Lines that it has not printed yet, while it is slow. */
  late: string[] | undefined;
  #say: ((line: string) => void) | undefined;
  #hasTold = false;
  #isThere = false;

  async run(program: string, args: readonly string[], options: CommandOptions = {}) {
    const line = [program, ...args].join(" ");
    if (line === "nft -c -f -") return this.trial;
    this.running.add(line);
    try {
      return await (line === "nft -i" ? this.#hold(options) : this.#monitor(line, options));
    } finally {
      this.running.delete(line);
    }
  }

  /** A packet comes by. */
  say(...lines: readonly string[]): void {
    if (this.late) return void this.late.push(...lines);
    for (const line of lines) this.#say?.(line);
    this.#hasTold = true;
  }

  /** Prints what is late. */
  catchUp(): void {
    const { late = [] } = this;
    this.late = undefined;
    this.say(...late);
  }

  /** A network whose datagrams to their own senders are beacons. */
  readonly network: Network = {
    ...systemNetwork,
    listenUdp: (address) => {
      const socket = systemNetwork.listenUdp(address);
      const { port } = socket.addr;
      return {
        addr: socket.addr,
        receive: (buffer) => socket.receive(buffer),
        close: () => socket.close(),
        send: (data) => {
          if (this.sees && this.#say) this.say(...beaconLines(port));
          return Promise.resolve(data.length);
        },
      };
    },
  };

  async #hold({ stdin, onErrorLine }: CommandOptions): Promise<CommandResult> {
    for await (const text of stdin as AsyncIterable<string>) {
      this.texts.push(text);
      if (text.includes("limit rate")) this.marksUnseen ||= !this.#hasTold;
      if (this.trial.code !== 0) onErrorLine?.(this.trial.stderr);
      else this.#isThere = true;
      onErrorLine?.("Error: syntax error, unexpected string");
      onErrorLine?.(text.trimEnd().split("\n").at(-1)!);
    }
    return { code: 0, stdout: "", stderr: "" };
  }

  async #monitor(
    line: string,
    { onLine, signal }: CommandOptions,
  ): Promise<CommandResult> {
    this.monitorsNothing ||= !this.#isThere;
    if (this.monitorEnds.some((each) => line.endsWith(each))) {
      return { code: 1, stdout: "", stderr: `no such thing as ${line.split(" -- ")[1]}\n` };
    }
    this.#say = (line) => void onLine?.(line);
    await new Promise((resolve) => signal?.addEventListener("abort", resolve, { once: true }));
    throw new CommandError("setpriv", [], "aborted", "the caller gave up");
  }
}

/** What is printed of a datagram from and to this port. */
function beaconLines(port: number): readonly string[] {
  const place = "trace id be ip kube-relay-trace-7 output";
  return [
    `${place} packet: oif "lo" ip saddr 127.0.0.1 ip daddr 127.0.0.1 udp sport ${port} udp dport ${port}`,
    `${place} rule meta nftrace set 1 (verdict continue)`,
  ];
}

function start(
  commands: CommandRunner,
  { clock = systemClock, packet = PACKET, network }: {
    readonly clock?: Clock;
    readonly packet?: WatchedPacket;
    readonly network?: Network;
  } = {},
) {
  const used = network ?? (commands instanceof FakeNft ? commands.network : systemNetwork);
  const { signal } = new AbortController();
  return startNftWatch(
    { clock, network: used, commands, id: "7" },
    packet,
    signal,
    ({ place }) => place.includes("kube-relay") ? "ours" : undefined,
  );
}

Deno.test("there is no wait for a packet that was not sent", async () => {
  const pauses: number[] = [];
  const clock: Clock = {
    ...systemClock,
    sleep(ms, signal) {
      pauses.push(ms);
      return systemClock.sleep(ms, signal);
    },
  };
  await using watch = await start(new FakeNft(), { clock });
  pauses.length = 0;
  assertEquals((await watch.path({ isUnsent: true })).ending, "not seen");
  assertEquals(pauses, []);
});

Deno.test("startNftWatch() follows the packet, and everything ends with the watch", async () => {
  const nft = new FakeNft();
  {
    await using watch = await start(nft);
    assertEquals([...nft.running], [
      "nft -i",
      "setpriv --pdeathsig KILL -- nft -a monitor trace; list table ip kube-relay-trace-7",
    ]);
    const mark = "trace id aa ip kube-relay-trace-7 output";
    nft.say(
      `${mark} packet: oif "v0" ip saddr 10.0.0.1 ip daddr 10.96.0.1 ip id 7 tcp sport 4000 tcp dport 80`,
      `${mark} rule meta nftrace set 1 (verdict continue)`,
      "trace id aa ip kube-relay nat-output rule jump services (verdict jump services)",
      "trace id aa ip filter output rule reject (verdict drop)",
    );
    await watch.seen;
    const path = await watch.path({});
    assertEquals(path.ending, "rejected");
    assertEquals(path.steps.map(({ meaning }) => meaning), ["ours", undefined]);
    assertEquals(path.header?.sourcePort, 4000);
    assertEquals(nft.marksUnseen, false, "the packet may come at once");
  }
  assertEquals(nft.running.size, 0);
});

for (const isSeen of [true, false]) {
  const what = isSeen ? "the end of the path" : "the whole path";
  Deno.test(`a tool that is late with ${what} is waited for`, async () => {
    const nft = new FakeNft();
    await using watch = await start(nft);
    const mark = "trace id aa ip kube-relay-trace-7 output";
    if (!isSeen) nft.late = [];
    nft.say(
      `${mark} packet: oif "v0" ip saddr 10.0.0.1 ip daddr 10.96.0.1 ip id 7 tcp sport 4000 tcp dport 80`,
      `${mark} rule meta nftrace set 1 (verdict continue)`,
    );
    nft.late ??= [];
    nft.say("trace id aa ip filter output rule reject (verdict drop)");
    const path = watch.path({});
    // By then it would be quiet, and the packet not seen.
    const least = isSeen ? 30 : 80;
    await eventually("it is asked again and again", () => nft.late!.length > least, {
      deadlineMs: 10_000,
    });
    nft.catchUp();
    assertEquals((await path).ending, "rejected");
  });
}

Deno.test("startNftWatch() reports that a tool sees nothing, and leaves nothing running", async () => {
  const nft = new FakeNft();
  nft.sees = false;
  // Each beacon takes a second.
  let now = 0;
  const clock: Clock = {
    ...systemClock,
    now: () => now,
    sleep: () => (now += 1_000, Promise.resolve()),
  };
  await assertRejects(() => start(nft, { clock }), TraceError, "reported no marked packet");
  assertEquals(nft.running.size, 0);
});

Deno.test("startNftWatch() gives the reason why a tool ended, and leaves nothing running", async () => {
  const nft = new FakeNft();
  nft.monitorEnds = ["trace-7"];
  nft.sees = false;
  await assertRejects(
    () => start(nft),
    TraceError,
    "kube-relay-trace-7' ended: no such thing as nft -a monitor trace; list table ip",
  );
  assertEquals(nft.running.size, 0);
});

for (
  const [stderr, words] of [
    ["Error: Could not process rule: Operation not permitted", "CAP_NET_ADMIN"],
    ["/dev/stdin:1:1: Error: unknown table option owner", "Linux 5.12 or later"],
    ["Error: out of luck", "nft says: Error: out of luck"],
  ] as const
) {
  Deno.test(`a table that is refused with '${stderr}' is explained`, async () => {
    const nft = new FakeNft();
    nft.trial = { code: 1, stdout: "", stderr };
    const error = await assertRejects(() => start(nft), TraceError);
    assertStringIncludes(error.message, words);
    assertEquals(nft.running.size, 0);
  });
}

Deno.test("the first packet of a flow from another sender is marked", async () => {
  const nft = new FakeNft();
  const { sourcePort: _, ...rest } = PACKET;
  await using _watch = await start(nft, {
    packet: {
      ...rest,
      from: parseIpAddress("10.0.0.7"),
      protocol: "UDP",
      comesFrom: "elsewhere",
    },
  });
  const [table = "", rule = ""] = nft.texts;
  assertStringIncludes(table, "hook prerouting priority -175; ");
  assertStringIncludes(
    rule,
    "prerouting ip saddr 10.0.0.7 ip daddr 10.96.0.1 udp dport 80 ct state new limit ",
  );
});

Deno.test("a socket that cannot be opened is an error of the trace, and nothing is started", async () => {
  const nft = new FakeNft();
  const listenUdp = () => {
    throw Object.assign(new Error("no ::1 here"), { code: "EADDRNOTAVAIL" });
  };
  const started = start(nft, { network: { ...systemNetwork, listenUdp } });
  await assertRejects(() => started, TraceError, "Cannot trace: no ::1 here");
  assertEquals([...nft.running], []);
});
