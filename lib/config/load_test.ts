import { assert, assertEquals, assertRejects } from "@std/assert";
import { ConfigurationError } from "./configuration_error.ts";
import { loadConfiguration, upstreamPath } from "./load.ts";
import { parseFlags } from "./parse_flags.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

interface Case {
  readonly file?: string;
  readonly uid?: number;
  readonly env?: Readonly<Record<string, string>>;
}

function load(argv: readonly string[], { file, uid = 0, env = {} }: Case = {}) {
  const { values, problems } = parseFlags(argv);
  assertEquals(problems, []);
  const readTextFile = () =>
    file === undefined ? Promise.reject(new Error("No such file")) : Promise.resolve(HEAD + file);
  return loadConfiguration(
    { readTextFile, uid, env: (name) => env[name] },
    { flags: values },
  );
}

async function problemsOf(argv: readonly string[], options: Case = {}): Promise<readonly string[]> {
  return (await assertRejects(() => load(argv, options), ConfigurationError)).problems;
}

Deno.test("loadConfiguration() with nothing at all has kube-proxy's defaults", async () => {
  const { proxy, mode, relay, notices } = await load([]);
  assertEquals(mode, "default");
  assertEquals(notices, []);
  assertEquals(proxy.healthzBindAddress, "0.0.0.0:10256");
  assertEquals(proxy.metricsBindAddress, "127.0.0.1:10249");
  assertEquals(proxy.iptables.syncPeriod, 30_000);
  assertEquals(proxy.iptables.minSyncPeriod, 1_000);
  assertEquals(proxy.ipvs.minSyncPeriod, 1_000);
  assertEquals(proxy.configSyncPeriod, 900_000);
  assertEquals(proxy.oomScoreAdj, -999);
  assertEquals(proxy.conntrack.tcpEstablishedTimeout, 86_400_000);
  assertEquals(proxy.clientConnection.qps, 5);
  assertEquals(proxy.iptables.localhostNodePorts, true);
  assertEquals(relay, {
    manifests: [],
    serviceCidrs: [],
    externalIpRanges: [],
    addressMode: "auto",
    udpTimeoutMs: 60_000,
    userspaceEngine: "deno",
    userspaceWorkers: 1,
    drainTimeoutMs: 10_000,
    ipvsDrainTimeoutMs: 900_000,
    maxConnectionsPerService: 10_000,
    unixSocketFolders: [],
    controlSocket: "/run/kube-relay/control.sock",
    stateDirectory: "/run/kube-relay",
    takeover: false,
    dryRun: false,
    toolsPath: [],
    endpointsFallback: false,
    serviceCounters: false,
    statusPage: false,
    initOnly: false,
  });
});

Deno.test("loadConfiguration() is deeply frozen", async () => {
  const loaded = await load(["--manifests=a"]);
  assert(Object.isFrozen(loaded.proxy.iptables) && Object.isFrozen(loaded.relay.manifests));
});

Deno.test("loadConfiguration() says that manifests without a mode mean userspace", async () => {
  const { mode, notices } = await load(["--manifests=a"]);
  assertEquals(mode, "userspace");
  assertEquals(notices.map(({ level, message }) => [level, message]), [
    ["info", "No mode is set, which with --manifests means userspace"],
  ]);
  const named = await load(["--manifests=a", "--proxy-mode=auto"]);
  assertEquals([named.mode, named.notices], ["auto", []]);
});

Deno.test("loadConfiguration() reports that a file cannot be read, and why", async () => {
  assertEquals(await problemsOf(["--config=c.yaml"]), [
    "--config: Cannot read configuration file 'c.yaml': No such file",
  ]);
});

const ONCE = "at once; give one of them";

/** Where objects may come from, and what is said of two places at once. */
const SOURCES: readonly (readonly [argv: string, ...problems: string[]])[] = [
  ["--manifests=m"],
  ["--master=https://m --kubeconfig=k"],
  ["--manifests=m --unix-socket-folders=/run/app"],
  [
    "--unix-socket-folders=/run/app",
    "--unix-socket-folders: Cannot use Unix sockets for Services of an API server; give --manifests",
  ],
  [
    "--manifests=m --unix-socket-folders=run",
    "--unix-socket-folders: Expected absolute paths, found 'run'",
  ],
  [
    "--manifests=m --kubeconfig=/k",
    `--manifests: Cannot take objects from manifests and from kubeconfig '/k' ${ONCE}`,
  ],
  [
    "--manifests=m --master=https://h",
    `--manifests: Cannot take objects from manifests and from --master ${ONCE}`,
  ],
  [
    "--manifests=m --network-policy --policy-kubeconfig=/p",
    `--policy-kubeconfig: Cannot take policies from '/p' and from manifests ${ONCE}`,
  ],
  [
    "--manifests=m --routing --routing-kubeconfig=/r",
    `--routing-kubeconfig: Cannot take Nodes and addresses from '/r' and from manifests ${ONCE}`,
  ],
  ["--manifests=", "--manifests: Expected the path of a file or folder, found nothing"],
  [`--control-socket=/${"s".repeat(106)}`],
  [
    `--control-socket=/${"ä".repeat(53)}s`,
    `--control-socket: Expected a path of at most 107 bytes, found '/${
      "ä".repeat(53)
    }s' with 108: ` +
    "Unix sockets have no room for more",
  ],
];

for (const [argv, ...problems] of SOURCES) {
  Deno.test(`loadConfiguration() ${problems.length > 0 ? "refuses" : "takes"} ${argv}`, async () => {
    const words = argv.split(" ");
    if (problems.length > 0) assertEquals(await problemsOf(words), problems);
    else await load(words);
  });
}

Deno.test("loadConfiguration() finds places for a plain user", async (t) => {
  const cases: readonly [string, Case, string, string][] = [
    [
      "with a session",
      { uid: 1000, env: { XDG_RUNTIME_DIR: "/run/user/1000/", HOME: "/home/a" } },
      "/run/user/1000/kube-relay/control.sock",
      "/run/user/1000/kube-relay",
    ],
    [
      "without a session",
      { uid: 1000, env: { HOME: "/home/a" } },
      "/home/a/.cache/kube-relay/control.sock",
      "/home/a/.cache/kube-relay",
    ],
    [
      "with relative paths in the environment",
      { uid: 1000, env: { RUNTIME_DIRECTORY: "run", XDG_RUNTIME_DIR: "run", HOME: "/home/a" } },
      "/home/a/.cache/kube-relay/control.sock",
      "/home/a/.cache/kube-relay",
    ],
    [
      "in a unit with a dynamic user",
      { uid: 61_000, env: { RUNTIME_DIRECTORY: "/run/kube-relay:/x" } },
      "/run/kube-relay/control.sock",
      "/run/kube-relay",
    ],
    [
      "root takes nothing from the session",
      { uid: 0, env: { XDG_RUNTIME_DIR: "/tmp/evil", HOME: "/tmp/evil" } },
      "/run/kube-relay/control.sock",
      "/run/kube-relay",
    ],
  ];
  for (const [name, options, socket, state] of cases) {
    await t.step(name, async () => {
      const { relay } = await load([], options);
      assertEquals([relay.controlSocket, relay.stateDirectory], [socket, state]);
    });
  }
});

Deno.test("loadConfiguration() without HOME asks for the two flags", async () => {
  assertEquals((await problemsOf([], { uid: 1000 })).length, 2);
  const given = ["--control-socket=/a/s", "--state-dir=/a"];
  assertEquals((await load(given, { uid: 1000 })).relay.controlSocket, "/a/s");
});

Deno.test("upstreamPath() names blocks by their Go types and fields as Go spells them", () => {
  const cases = {
    "iptables.masqueradeBit": "KubeProxyIPTablesConfiguration.MasqueradeBit",
    "ipvs.excludeCIDRs.1": "KubeProxyIPVSConfiguration.ExcludeCIDRs[1]",
    "conntrack.tcpCloseWaitTimeout": "KubeProxyConntrackConfiguration.TCPCloseWaitTimeout",
    oomScoreAdj: "OOMScoreAdj",
    "clientConnection.burst": "ClientConnection.Burst",
    "featureGates.AllAlpha": "featureGates.AllAlpha",
  };
  for (const [path, expected] of Object.entries(cases)) {
    assertEquals(upstreamPath(path), `KubeProxyConfiguration.${expected}`);
  }
});
