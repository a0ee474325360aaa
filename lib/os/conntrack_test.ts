import { assertEquals, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { formatHostPort, parsePort, type Port } from "../net/port.ts";
import type { TrackedFlow } from "../proxy/stale_flows.ts";
import {
  connectionQuery,
  createConntrack,
  findConntrackEntry,
  readConntrackSize,
  type TrackedConnection,
} from "./conntrack.ts";

/** Output of conntrack 1.4.7. */
const LINE_4 = "udp      17 99 src=10.0.0.1 dst=10.96.0.10 sport=51 dport=53 [UNREPLIED] " +
  "src=10.1.0.1 dst=10.0.0.1 sport=5353 dport=51 mark=0 use=1\n";
const LINE_6 = "udp      17 29 src=fd00::1 dst=fd00::2 sport=5 dport=53 " +
  "src=fd00::9 dst=fd00::1 sport=53 dport=5 [ASSURED] mark=0 use=1\n";

function ports(...numbers: readonly number[]): ReadonlySet<Port> {
  return new Set(numbers.map(parsePort));
}

function flow(to: string, port: number, from: string): TrackedFlow {
  return {
    destination: parseIpAddress(to),
    destinationPort: parsePort(port),
    replySource: parseIpAddress(from),
    replySourcePort: parsePort(5353),
  };
}

async function listed(text: string, wanted: ReadonlySet<Port>) {
  const commands = new FakeCommandRunner().on("conntrack -L", { stdout: text });
  const flows: string[] = [];
  const entries = await createConntrack(commands).listFlows("IPv4", {
    protocol: "UDP",
    ports: wanted,
    onFlow: (each) =>
      flows.push(
        `${formatHostPort(each.destination, each.destinationPort)} ${
          formatHostPort(each.replySource, each.replySourcePort)
        }`,
      ),
  });
  return { entries, flows, lines: commands.calls.map(({ line }) => line) };
}

Deno.test("listFlows() reads both families, and leaves out ports that are not asked for", async () => {
  const text = `of some other kind\n${LINE_4}${LINE_6}${LINE_4.replace("dport=53", "dport=54")}`;
  assertEquals(await listed(text, ports(53, 1, 2, 3)), {
    entries: 4,
    flows: ["10.96.0.10:53 10.1.0.1:5353", "[fd00::2]:53 [fd00::9]:53"],
    lines: ["conntrack -L -f ipv4 -p udp"],
  });
});

Deno.test("listFlows() lets the tool leave out other ports if few are asked for", async () => {
  const { lines, entries } = await listed(LINE_4, ports(53, 30053));
  assertEquals(lines, [
    "conntrack -L -f ipv4 -p udp --orig-port-dst 53",
    "conntrack -L -f ipv4 -p udp --orig-port-dst 30053",
  ]);
  assertEquals(entries, 2);
  assertEquals((await listed(LINE_4, ports())).lines, []);
});

Deno.test("listFlows() and deleteFlows() take only unanswered attempts of TCP", async () => {
  const [tcp, deleting] = [
    LINE_4.replace("udp      17 99", "tcp      6 99 SYN_SENT"),
    "-D -f ipv4 -p tcp --state SYN_SENT --orig-dst 10.96.0.10 --orig-port-dst 53 " +
    "--reply-src 10.1.0.1 --reply-port-src 5353\n",
  ];
  const commands = new FakeCommandRunner().on("conntrack -L", { stdout: tcp })
    .on("conntrack -R", { stdout: "tcp      6 …\n" });
  const conntrack = createConntrack(commands);
  const flows: TrackedFlow[] = [];
  await conntrack.listFlows("IPv4", {
    ...{ protocol: "TCP", ports: ports(53) },
    onFlow: (each) => void flows.push(each),
  });
  assertEquals(await conntrack.deleteFlows("IPv4", flows, { protocol: "TCP" }), 1);
  assertEquals(commands.calls.map(({ line }) => line), [
    "conntrack -L -f ipv4 -p tcp --state SYN_SENT",
    "conntrack -R /proc/self/fd/0",
  ]);
  assertEquals(commands.calls[1]!.stdin, deleting);
});

Deno.test("listFlows() names the failed action and the remedy", async () => {
  await assertRejects(
    () => listed("udp 17 29 src=10.0.0.1\n", ports(53)),
    Error,
    "Cannot understand conntrack's line 'udp 17 29 src=10.0.0.1'",
  );
  const commands = new FakeCommandRunner().on("conntrack", {
    code: 1,
    stderr:
      "conntrack v1.4.7 (conntrack-tools): Operation failed: sorry, you must be root or get " +
      "CAP_NET_ADMIN capability to do this\n",
  });
  await assertRejects(
    () =>
      createConntrack(commands).listFlows("IPv6", {
        protocol: "UDP",
        ports: ports(53),
        onFlow: () => {},
      }),
    Error,
    "Cannot run 'conntrack -L': Operation failed: sorry, you must be root or get CAP_NET_ADMIN capability to do this; run kube-relay as root or with",
  );
});

Deno.test("deleteFlows() deletes by one process, and counts its messages", async () => {
  const commands = new FakeCommandRunner().on("conntrack -R /proc/self/fd/0", ({ stdin }) => ({
    stdout: stdin.replaceAll(/^.*$/gm, (line) => line && "udp      17 99 src=10.0.0.1 …"),
  }));
  const flows = [flow("10.96.0.10", 53, "10.1.0.1"), flow("10.96.0.10", 53, "10.1.0.2")];
  const conntrack = createConntrack(commands);
  assertEquals(await conntrack.deleteFlows("IPv4", flows, { protocol: "UDP" }), 2);
  assertEquals(
    commands.calls[0]?.stdin,
    "-D -f ipv4 -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.1.0.1 --reply-port-src 5353\n" +
      "-D -f ipv4 -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.1.0.2 --reply-port-src 5353\n",
  );
  assertEquals(await conntrack.deleteFlows("IPv6", [], { protocol: "UDP" }), 0);
  assertEquals(commands.calls.length, 1, "nothing to delete is nothing to run");
  const many = Array.from({ length: 250 }, (_, index) => flow("fd00::2", 53, `fd00::${index + 3}`));
  assertEquals(await conntrack.deleteFlows("IPv6", many, { protocol: "UDP" }), 250);
  assertEquals(commands.calls.length, 4);
});

/** Output of `conntrack -L` for a connection to a Service, a ping and a tunnel. */
const LISTED =
  "tcp      6 431999 ESTABLISHED src=10.1.0.1 dst=10.96.0.1 sport=40000 dport=443 src=10.1.0.9 dst=10.1.0.1 sport=6443 dport=40000 [ASSURED] mark=0 use=1\n" +
  "icmpv6   58 29 src=fd00::1 dst=fd00::2 type=128 code=0 id=7 src=fd00::2 dst=fd00::1 type=129 code=0 id=7 mark=0 use=1\n" +
  "unknown  47 599 src=10.1.0.1 dst=10.1.0.2 src=10.1.0.2 dst=10.1.0.1 mark=0 use=1\n";

async function connectionsOf(addresses: readonly string[], text = LISTED) {
  const commands = new FakeCommandRunner().on("conntrack -L", { stdout: text });
  const connections: TrackedConnection[] = [];
  await createConntrack(commands).listConnections("IPv4", {
    addresses: new Set(addresses.map(parseIpAddress)),
    onConnection: (each) => connections.push(each),
  });
  return { connections, lines: commands.calls.map(({ line }) => line) };
}

Deno.test("listConnections() has clients and the ends that answer, of every protocol", async () => {
  const { connections, lines } = await connectionsOf(["10.1.0.9", "fd00::1", "10.1.0.2"]);
  const queries = connections.map(connectionQuery);
  const tool = new FakeCommandRunner().on("conntrack -R", { stdout: "deleted\n" });
  assertEquals(await createConntrack(tool).deleteConnections("IPv4", queries), 1);
  assertEquals(tool.calls[0]!.stdin, queries.map((query) => `-D -f ipv4 ${query}\n`).join(""));
  assertEquals(queries, [
    "-p tcp --orig-src 10.1.0.1 --orig-dst 10.96.0.1 --reply-src 10.1.0.9 --orig-port-dst 443 --reply-port-src 6443",
    "-p icmpv6 --orig-src fd00::1 --orig-dst fd00::2 --reply-src fd00::2",
    "-p 47 --orig-src 10.1.0.1 --orig-dst 10.1.0.2 --reply-src 10.1.0.2",
  ]);
  assertEquals(lines, ["conntrack -L -f ipv4"]);
});

Deno.test("listConnections() lets the tool leave out other addresses if few are asked for", async () => {
  const { lines } = await connectionsOf(["10.1.0.1"]);
  assertEquals(lines, [
    "conntrack -L -f ipv4 --orig-src 10.1.0.1",
    "conntrack -L -f ipv4 --reply-src 10.1.0.1",
  ]);
  await assertRejects(() => connectionsOf(["10.1.0.1"], "of another form\n"), SyntaxError);
});

const TCP = "tcp      6 118 TIME_WAIT src=10.1.0.1 dst=10.0.0.9 sport=45664 dport=80 " +
  "src=10.1.0.2 dst=10.1.0.1 sport=8080 dport=45664 [ASSURED] mark=0 use=1";
const QUERY = {
  family: "IPv4",
  protocol: "TCP",
  from: parseIpAddress("10.1.0.1"),
  sourcePort: 45664,
  to: parseIpAddress("10.0.0.9"),
  port: parsePort(80),
} as const;

Deno.test("findConntrackEntry() asks for one connection, and gives the reason why it can't", async () => {
  const commands = new FakeCommandRunner().on("conntrack", { stdout: `${TCP}\n` });
  const [client, seen] = [parseIpAddress("10.1.0.1"), parseIpAddress("10.0.0.9")];
  assertEquals(await findConntrackEntry(commands, QUERY), {
    original: { source: client, destination: seen, sourcePort: 45664, destinationPort: 80 },
    reply: {
      source: parseIpAddress("10.1.0.2"),
      destination: client,
      sourcePort: 8080,
      destinationPort: 45664,
    },
    state: "TIME_WAIT",
  });
  const udp = new FakeCommandRunner().on("conntrack", { stdout: LINE_6 });
  const { state, reply } = (await findConntrackEntry(udp, QUERY))!;
  assertEquals([state, reply.sourcePort], [undefined, 53]);
  assertEquals(
    commands.calls[0]?.line,
    "conntrack -L -f ipv4 -p tcp --orig-dst 10.0.0.9 --orig-port-dst 80 --orig-src 10.1.0.1 " +
      "--orig-port-src 45664",
  );
  commands.on("conntrack", {
    code: 1,
    stderr: "conntrack v1.4.7 (conntrack-tools): Operation failed: sorry\n",
  });
  await assertRejects(() => findConntrackEntry(commands, QUERY), Error, "Operation failed: sorry");
});

for (
  const [stdout, expected] of [
    [
      "net.netfilter.nf_conntrack_count = 12\nnet.netfilter.nf_conntrack_max = 262144\n",
      { entries: 12, limit: 262_144 },
    ],
    ["net.netfilter.nf_conntrack_count = 0\nnet.netfilter.nf_conntrack_max = 0\n", {
      ...{ entries: 0, limit: 0 },
    }],
    ["", undefined],
    ["net.netfilter.nf_conntrack_max = 262144\n", undefined],
    ["net.netfilter.nf_conntrack_count = many\nnet.netfilter.nf_conntrack_max = 1\n", undefined],
  ] as const
) {
  Deno.test(`readConntrackSize() reads '${stdout.trim().replaceAll("\n", "; ")}'`, async () => {
    const commands = new FakeCommandRunner().on("sysctl", { stdout, code: expected ? 0 : 255 });
    assertEquals(await readConntrackSize(commands), expected);
  });
}
