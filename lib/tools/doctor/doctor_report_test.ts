import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { writeKubeconfig } from "../../../tests/support/builders/kubeconfig_file.ts";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
import { FakeApiServer } from "../../../tests/support/fakes/fake_api_server.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import {
  type CommandAnswer,
  FakeCommandRunner,
} from "../../../tests/support/fakes/fake_command_runner.ts";
import {
  type FakeHost,
  fakeHostChecks,
  missingFeature,
} from "../../../tests/support/fakes/fake_host_checks.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { machineOf, testDependencies } from "../../../tests/support/fakes/test_dependencies.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import type { BackendTable } from "../../app/dependencies.ts";
import { parseCidr } from "../../net/cidr.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { type Clock, systemClock } from "../../os/clock.ts";
import { CommandError } from "../../os/command_runner.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { FindingOptions } from "../../proxy/host_checks.ts";
import { runCommandLine } from "../cli/command_line.ts";
import { startControlServer } from "../control/control_server.ts";
import type { DoctorReport } from "./doctor_report.ts";

const BACKENDS: BackendTable = Object.fromEntries(
  ["iptables", "nftables", "ipvs"].map((mode) => [mode, () => {
    throw new Error("Unexpected backend");
  }]),
);
const USERSPACE: BackendTable = { userspace: (_, { family }) => new FakeBackend(family) };

/** The annotation with which k3s describes its arguments at its Node. */
const K3S = { "k3s.io/node-args": '["server"]' };
const BRIDGES = "net.bridge.bridge-nf-call-iptables = 1\nnet.bridge.bridge-nf-call-ip6tables = 1\n";

interface Machine extends FakeHost {
  readonly path?: string;
  readonly clock?: Clock;
  /** The output of `sysctl` for the settings of bridges. @default {there are none} */
  readonly bridges?: string;
  /** The ports that the kernel gives to sockets. @default {"32768\t60999"} */
  readonly ports?: string;
  /** Receives the modes that were probed. */
  readonly asked?: BackendMode[];
  readonly backends?: BackendTable;
  /** The mask of `/proc/self/status`. @default {CAP_NET_ADMIN and CAP_NET_RAW} */
  readonly capabilities?: string;
  /** Addresses by the names of their interfaces. */
  readonly addresses?: Readonly<Record<string, string>>;
  /** Whether the BGP daemon answers. @default {it is not asked} */
  readonly daemon?: "answers" | "silent";
  /** Answers of further commands. */
  readonly answers?: Readonly<Record<string, CommandAnswer | (() => CommandAnswer)>>;
}

/** Runs the verb with its control socket in a folder of the test's own. */
async function doctor(folder: string, argv: readonly string[], machine: Machine = {}) {
  const texts = { out: "", err: "" };
  const { clock = new FakeClock(), backends = BACKENDS, addresses = {}, daemon } = machine;
  const commands = new FakeCommandRunner()
    .on("cat /proc/self/status", { stdout: `CapEff:\t${machine.capabilities ?? "3000"}\n` })
    .on("cat /proc/sys/net/ipv4/ip_local_port_range", { stdout: machine.ports ?? "32768\t60999" })
    .on("sysctl net.bridge", { stdout: machine.bridges ?? "" });
  const answers = { "arping -V": {}, "ndisc6 -V": {}, ...machine.answers };
  for (const [line, answer] of Object.entries(answers)) commands.on(line, answer);
  const network = new FakeNetwork();
  network.interfaceAddresses = () =>
    Object.entries(addresses).map(([address, interfaceName]) => ({
      address: parseIpAddress(address),
      interfaceName,
      network: parseCidr(`${address}/24`),
    }));
  const bgp = () => ({
    sentPrefixes: () =>
      daemon === "answers" ? Promise.resolve(new Map()) : Promise.reject(new Error("no socket")),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  });
  const dependencies = testDependencies({
    ...{ clock, network, commands, backends },
    ...(daemon !== undefined && { routingBackends: { bgp } as never }),
    hostChecks: fakeHostChecks(machine, machine.asked),
    process: {
      ...{ uid: 1000, hostname: "node-a", kernelRelease: "6.1.0" },
      env: (name) => name === "PATH" ? machine.path : undefined,
    },
    print: (text) => void (texts.out += text),
    complain: (text) => void (texts.err += text),
  });
  const line = ["doctor", "--json", ...argv, `--control-socket=${folder}/c.sock`];
  const { signal } = new AbortController();
  const code = await runCommandLine(
    machineOf(dependencies),
    [...line, `--state-dir=${folder}`],
    () => signal,
  );
  assertEquals(texts.err, "");
  const report = JSON.parse(texts.out) as DoctorReport;
  const found = report.findings.filter(({ id }) => id !== "external-ips")
    .map(({ severity, id, evidence }) => `${severity} ${id}: ${evidence.join("; ")}`);
  return { code, report, found, text: texts.out };
}

Deno.test("doctor exits with 0 if kube-relay can run here, and knows the machine", () =>
  withFolder(async (folder) => {
    const { code, report } = await doctor(folder, ["--mode=auto"]);
    assertEquals([code, report.choice.mode, report.findings], [0, "nftables", []]);
    assertEquals(report.machine, {
      hostname: "node-a",
      kernel: "6.1.0",
      uid: 1000,
      capabilities: ["CAP_NET_ADMIN", "CAP_NET_RAW"],
      toolsPath: [],
    });
    assertEquals([report.api.state, report.relay.state], ["not configured", "not running"]);
    for (const [capabilities, count] of [["000001ffffffffff", 6], ["zz", undefined]] as const) {
      const { report: { machine } } = await doctor(folder, ["--mode=auto"], { capabilities });
      assertEquals(machine.capabilities?.length, count);
    }
  }));

const POOL = ["--routing", "--load-balancer-pools=192.0.2.0/28"];
const OBJECTS = ["--routing", "--routing-objects"];
const POOL6 = ["--routing", "--load-balancer-pools=2001:db8::/120"];
const IPVS = [...POOL, "--mode=ipvs"];

/** Tools of layer 2 that are not installed. */
const NO_TOOLS = Object.fromEntries(["arping", "ndisc6"].map((tool) => [`${tool} -V`, () => {
  throw new CommandError(tool, ["-V"], "not-found", `${tool} is not installed`);
}]));

function arpIgnore(value: number) {
  const stdout = `net.ipv4.conf.all.arp_ignore = 0\nnet.ipv4.conf.eth0.arp_ignore = ${value}\n`;
  return { answers: { "sysctl net.ipv4.conf.all": { stdout } } };
}

const SOURCE = "info userspace-source-address: NetworkPolicies that allow nodes allow every pod " +
  "that comes by a Service; client addresses are lost, also with externalTrafficPolicy: Local";

/** The findings for flags and a machine; it exits with 1 if one of them is blocking. */
const FINDINGS: readonly (readonly [string, readonly string[], Machine, readonly string[]])[] = [
  ["an unavailable mode", ["--mode=nftables"], { probes: { nftables: [missingFeature("nft")] } }, [
    "blocking no-mode: Cannot run in mode 'nftables': nft: no nft (get nft); --proxy-mode=auto " +
    "uses the best mode that works here, 'kube-relay doctor' shows more",
  ]],
  [
    "findings of the host, blocking ones first",
    [],
    {
      findings: [
        { id: "a", severity: "info", summary: "a", evidence: ["x"] },
        { id: "b", severity: "blocking", summary: "b", evidence: ["y"] },
      ],
    },
    ["blocking b: y", "info a: x"],
  ],
  ["folders of --tools-path that are not searched", ["--tools-path=/opt/tools"], {
    path: "/usr/bin",
  }, [
    "warning tools-path: the PATH does not begin with /opt/tools, and Deno looks programs up only there",
  ]],
  ["folders of --tools-path that are searched", ["--tools-path=/opt/tools"], {
    path: "/opt/tools:/usr/bin",
  }, []],
  ["enough source ports", ["--mode=userspace", "--address-mode=each"], { backends: USERSPACE }, [
    SOURCE,
  ]],
  [
    "an engine that cannot be used",
    ["--mode=userspace", "--address-mode=each", "--userspace-engine=syscalls"],
    { backends: USERSPACE },
    [
      "blocking no-mode: Cannot use --userspace-engine=syscalls: this build has no data processes",
      SOURCE,
    ],
  ],
  [
    "an engine that need not be used",
    [
      "--mode=userspace",
      "--address-mode=each",
      "--userspace-engine=auto",
    ],
    { backends: USERSPACE },
    [SOURCE],
  ],
  ["unknown source ports", ["--mode=userspace", "--address-mode=each"], {
    ...{ backends: USERSPACE, ports: "?" },
  }, [SOURCE]],
  ["few source ports", ["--mode=userspace", "--address-mode=each"], {
    ...{ backends: USERSPACE, ports: "40000\t43999\n" },
  }, [
    "warning userspace-ports: net.ipv4.ip_local_port_range has 4000 ports: all UDP flows " +
    "together may use 3000, and TCP connections to one endpoint 4000; " +
    "--max-connections-per-service is 10000",
    SOURCE,
  ]],
  [
    "few source ports, and no more flows",
    ["--mode=userspace", "--address-mode=each", "--max-connections-per-service=3000"],
    { backends: USERSPACE, ports: "40000\t43999\n" },
    [SOURCE],
  ],
  ["nothing without --routing", [], { daemon: "silent" }, []],
  ["nothing on a machine that has everything", POOL, {}, []],
  ["no pools", ["--routing"], {}, ["info routing-no-pools: routing.pools is empty"]],
  ["the tools that are missing for pools of IPv4", POOL, { answers: NO_TOOLS }, [
    "warning layer2-tools: arping, which sends gratuitous ARP: arping is not installed",
  ]],
  ["the tools that are missing for pools of IPv6", POOL6, { answers: NO_TOOLS }, [
    "warning layer2-tools: ndisc6, which sends neighbour solicitations: ndisc6 is not installed",
  ]],
  ["what pools of objects may need", [...OBJECTS, "--mode=ipvs"], {
    answers: { ...NO_TOOLS, ...arpIgnore(0).answers },
    addresses: { "192.0.2.17": "eth0", "127.0.0.1": "lo" },
  }, [
    "warning layer2-tools: arping, which sends gratuitous ARP: arping is not installed; " +
    "ndisc6, which sends neighbour solicitations: ndisc6 is not installed",
    "warning layer2-arp: net.ipv4.conf.eth0.arp_ignore is 0",
  ]],
  [
    "nothing if objects are announced by BGP",
    [
      ...OBJECTS,
      ...["--bgp", "--load-balancer-announce=bgp"],
    ],
    { answers: NO_TOOLS, daemon: "answers" },
    [],
  ],
  ["missing capabilities", POOL, { capabilities: "1000" }, [
    "warning layer2-capabilities: tools are started without CAP_NET_RAW",
  ]],
  ["nothing about capabilities that are not known", POOL, { capabilities: "zz" }, []],
  ["where every node would answer ARP", IPVS, arpIgnore(0), [
    "warning layer2-arp: net.ipv4.conf.eth0.arp_ignore is 0",
  ]],
  ["a kernel that answers ARP as it should", IPVS, arpIgnore(1), []],
  ["strict ARP", [...IPVS, "--ipvs-strict-arp"], arpIgnore(0), []],
  [
    "pools that have addresses of the machine, pods or Services",
    [
      ...["--routing", "--load-balancer-pools=a=192.0.2.0/27,b=10.244.3.0/24,c=10.96.200.1"],
      ...["--cluster-cidr=10.244.0.0/16", "--service-cidr=10.96.0.0/16"],
    ],
    { addresses: { "192.0.2.3": "eth0", "192.0.2.4": "kube-ipvs0" } },
    [
      "warning pool-overlaps-range: pool 'b' has addresses of 10.244.0.0/16, a range of pods; " +
      "pool 'c' has addresses of 10.96.0.0/16, a range of cluster IPs",
      "info pool-node-address: pool 'a' has 192.0.2.3 of eth0",
    ],
  ],
  ["a BGP daemon that answers", [...POOL, "--bgp"], { daemon: "answers" }, []],
  ["a BGP daemon that does not answer", [...POOL, "--bgp"], { daemon: "silent" }, [
    "warning bgp-daemon: no socket",
  ]],
  ["nothing about a BGP daemon that is not used", POOL, { daemon: "silent" }, []],
];

for (const [what, argv, machine, expected] of FINDINGS) {
  Deno.test(`doctor reports ${what}`, () =>
    withFolder(async (folder) => {
      const addresses = { "192.0.2.17": "eth0", "198.51.100.1": "eth1" };
      const { code, found } = await doctor(folder, ["--mode=auto", ...argv], {
        addresses,
        ...machine,
      });
      assertEquals(found, expected);
      assertEquals(code, expected.some((line) => line.startsWith("blocking")) ? 1 : 0);
    }));
}

Deno.test("doctor reports a kubeconfig that cannot be read, or that every user can read", () =>
  withFolder(async (folder) => {
    const file = `${folder}/kubeconfig`;
    const argv = ["--mode=auto", `--kubeconfig=${file}`];
    const missing = await doctor(folder, argv);
    assertEquals([missing.code, missing.report.api.state], [1, "unusable"]);
    const text = {
      "current-context": "c",
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      // No program listens on the discard port.
      clusters: [{ name: "c", cluster: { server: "http://127.0.0.1:9" } }],
      users: [{ name: "u", user: { token: "secret-of-the-test" } }],
    };
    await Deno.writeTextFile(file, JSON.stringify(text), { mode: 0o644 });
    const open = await doctor(folder, argv, { clock: systemClock });
    assertEquals([open.code, open.report.api.state], [0, "unreachable"]);
    assertEquals(open.report.findings.map(({ id }) => id), ["api-unreachable", "api-credentials"]);
    assertEquals(open.report.findings[1]!.cure, `chmod 600 ${file}`);
    assert(!open.text.includes("secret-of-the-test"), open.text);
  }));

/** An API server, and the flag of a kubeconfig for it. */
async function withServer(
  run: (folder: string, fake: FakeApiServer, flag: string) => Promise<void>,
): Promise<void> {
  await using fake = await FakeApiServer.start();
  await withFolder(async (folder) => {
    const file = `${folder}/kubeconfig`;
    const user = { token: fake.rotateToken() };
    await writeKubeconfig(file, { server: fake.url, ca: fake.ca, user });
    await run(folder, fake, `--kubeconfig=${file}`);
  });
}

Deno.test("doctor reads of the own Node how k3s was started", () =>
  withServer(async (folder, fake, flag) => {
    const metadata = { name: "node-a", annotations: { ...K3S, other: "1" } };
    fake.store.create({ apiVersion: "v1", kind: "Node", metadata });
    const asked: FindingOptions[] = [];
    const onFindings = (options: FindingOptions) => asked.push(options);
    const machine = { clock: systemClock, onFindings };
    const { report } = await doctor(folder, ["--mode=auto", flag], machine);
    assertEquals([report.api.state, asked.at(-1)?.nodeAnnotations], ["answers", K3S]);
    fake.setMissing("/api/v1/nodes/node-a", 403);
    const refused = await doctor(folder, ["--mode=auto", flag], machine);
    assertEquals([refused.report.api.state, refused.found], ["answers", []]);
    assertEquals(asked.at(-1)?.nodeAnnotations, undefined);
  }));

Deno.test("doctor reports the obstacles to --network-policy", () =>
  withServer(async (folder, fake, flag) => {
    fake.setMissing("/api/v1/pods", 403);
    const look = (argv: readonly string[], machine: Machine = {}) =>
      doctor(folder, ["--mode=auto", flag, ...argv], { clock: systemClock, ...machine });
    assertEquals((await look([])).found, [], "no finding without the flag");
    const { code, report: { findings: [bridge, access] } } = await look(["--network-policy"]);
    assertEquals([code, bridge?.id, access?.id], [0, "bridge-netfilter", "policy-access"]);
    assertStringIncludes(bridge!.cure!, "modprobe br_netfilter");
    assertEquals(access!.evidence, [
      `no right to list pods, watch pods, by token of ${folder}/kubeconfig`,
      "missing rule: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: " +
      "{name: kube-relay-network-policy}, rules: [{apiGroups: [''], resources: [pods], verbs: " +
      "[list, watch]}]}",
    ]);
    const other = `--policy-kubeconfig=${folder}/policies`;
    const lost = await look(["--network-policy", other], { bridges: BRIDGES });
    assertEquals(lost.report.findings.map(({ id }) => id), ["policy-access-unknown"]);
    fake.setMissing("/api/v1/pods", undefined);
    const settable = await look(["--network-policy"], {
      bridges: BRIDGES.replaceAll("1\n", "0\n"),
    });
    assertEquals(settable.found.map((line) => line.split(":")[0]), ["info bridge-netfilter"]);
    const probes = { nftables: [missingFeature("nft")], iptables: [missingFeature("ipset")] };
    const asked: BackendMode[] = [];
    const lacking = { bridges: BRIDGES, probes, asked };
    const tool = "warning policy-tool: nftables: nft: no nft (get nft)";
    const named = await look(["--network-policy", "--mode=ipvs"], lacking);
    assertEquals(asked.toSorted(), [...new Set(asked)].sort(), "no mode is probed twice");
    assertEquals(named.found, [tool]);
    const relaying = ["--network-policy", "--mode=userspace", "--address-mode=each"];
    const { report: { findings }, found } = await look(relaying, {
      ...{ ...lacking, backends: USERSPACE },
    });
    assertStringIncludes(found[0]!, tool);
    assertStringIncludes(findings[0]!.summary, "would not cover direct pod-to-pod traffic");
    assertStringIncludes(found[1]!, "only kube-relay judges relayed connections by the client");
  }));

Deno.test("doctor reports how a running kube-relay does, and flags of it that cannot be used", () =>
  withFolder(async (folder) => {
    const setting = { wanted: "1", purpose: "be a test" };
    const status = testStatusReport({
      pid: 42,
      node: { name: "node-a", annotations: K3S },
      hostSettings: [
        { ...setting, name: "net.a", found: "1", state: "kept" },
        {
          ...{ ...setting, name: "net.b", found: "0", state: "refused" },
          ...{ reason: "read-only", cure: "sysctl -w net.b=1" },
        },
      ],
      sources: [{ name: "API", state: "not connected", problems: ["no route"] }],
      families: [testStatusFamily({ failures: 2, lastError: "it broke" })],
    });
    const config = `${folder}/none.yaml`;
    const server = await startControlServer({
      path: `${folder}/c.sock`,
      routes: {
        "/status": () => Promise.resolve(status),
        "/flags": () => Promise.resolve({ config }),
      },
    });
    try {
      const asked: FindingOptions[] = [];
      const onFindings = (options: FindingOptions) => asked.push(options);
      const backends = { ...BACKENDS, ...USERSPACE };
      const machine = { clock: systemClock, onFindings, backends };
      const { code, report, found } = await doctor(folder, ["--mode=auto"], machine);
      assertEquals([code, asked.at(-1)?.nodeAnnotations], [0, K3S]);
      const userspace = report.modes.find(({ mode }) => mode === "userspace");
      assertEquals(userspace?.notTried, "not tested because kube-relay may be running");
      assertEquals(report.relay, {
        state: "running",
        detail: "v0.1.0, process 42, serving, mode userspace",
        mode: "userspace",
      });
      assertEquals(found, [
        "warning relay-settings: net.b is 0, not 1: read-only; where that is allowed: " +
        "sysctl -w net.b=1",
        "warning relay-syncs-fail: IPv4: 2 syncs failed: it broke",
        "warning relay-sources: API: no route",
      ]);
      const without = await doctor(folder, [], machine);
      assertEquals(without.report.configuredBy, "a start without flags");
      assertStringIncludes(without.found[0]!, "warning flags-in-use: the running process: ");
      assertStringIncludes(without.found[0]!, config);
    } finally {
      await server.stop();
    }
  }));

Deno.test("doctor asks about other software with the intent of --routing", () =>
  withFolder(async (folder) => {
    for (
      const [argv, expected] of [
        [[], undefined],
        [["--routing"], { assignsByDefault: false }],
        [[...POOL, "--bgp", "--bgp-control-socket=/x"], {
          assignsByDefault: true,
          bgpSocket: "/x",
        }],
      ] as const
    ) {
      let intent: FindingOptions["routing"];
      const onFindings = ({ routing }: FindingOptions) => void (intent = routing);
      await doctor(folder, ["--mode=auto", ...argv], { onFindings });
      assertEquals(intent, expected);
    }
  }));
