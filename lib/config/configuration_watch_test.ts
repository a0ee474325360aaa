import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { withFolder } from "../../tests/support/with_folder.ts";
import { hastyClock } from "../../tests/support/fakes/hasty_clock.ts";
import { defaultConfiguration, type KubeProxyConfiguration } from "./configuration.ts";
import { changedFields, ConfigurationChanged, watchConfiguration } from "./configuration_watch.ts";
import { loadConfiguration, type LoadedConfiguration } from "./load.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
const DONE = new Error("done");

/** A configuration file in a folder of its own, and a watch on it. */
class Watched {
  readonly applied: { readonly proxy: LoadedConfiguration["proxy"]; readonly fields: string }[] =
    [];
  readonly results: string[] = [];
  readonly #logger = new MemoryLogger();
  readonly #controller = new AbortController();
  readonly #running: Promise<void>;

  private constructor(current: LoadedConfiguration, path: string) {
    this.#running = watchConfiguration({
      ...machine(),
      clock: hastyClock,
      logger: this.#logger,
    }, {
      flags: { config: path },
      current,
      mode: "userspace",
      onApplicable: ({ proxy }, fields) => this.applied.push({ proxy, fields: fields.join() }),
      onResult: (result) => this.results.push(result),
      signal: this.#controller.signal,
    });
    this.#running.catch(() => {});
  }

  static async start(path: string): Promise<Watched> {
    const current = await loadConfiguration(machine(), { flags: { config: path } });
    const watched = new Watched(current, path);
    // The first look finds nothing new.
    await until(() => watched.lines.length > 0);
    return watched;
  }

  /** The lines logged since the last {@linkcode forget}. */
  get lines(): readonly string[] {
    return this.#logger.lines.map(({ message, fields }) => `${message} ${fields.problem ?? ""}`);
  }

  /** The number of problems that each line leaves unnamed. */
  get more(): readonly unknown[] {
    return this.#logger.lines.map(({ fields }) => fields.more);
  }

  forget(): void {
    this.#logger.lines.length = 0;
  }

  get clusterCidr(): string | undefined {
    return this.applied.at(-1)?.proxy.clusterCIDR;
  }

  ended(): Promise<void> {
    return this.#running;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#controller.abort(DONE);
    await this.#running.catch(() => {});
  }
}

function machine() {
  return {
    readTextFile: (path: string) => Deno.readTextFile(path),
    uid: 0,
    env: () => undefined,
  };
}

async function until(condition: () => boolean): Promise<void> {
  await eventually("the change is seen", condition);
}

/** Ways to put a new text in the place of an old one. */
const WRITES: Readonly<Record<string, (path: string, text: string) => Promise<void>>> = {
  "written in place": (path, text) => Deno.writeTextFile(path, text),
  "renamed over": async (path, text) => {
    await Deno.writeTextFile(`${path}.new`, text);
    await Deno.rename(`${path}.new`, path);
  },
  "deleted and written again": async (path, text) => {
    await Deno.remove(path);
    await Deno.writeTextFile(path, text);
  },
  "moved aside with its folder": async (path, text) => {
    const folder = path.replace(/\/[^/]*$/, "");
    await Deno.mkdir(`${folder}.new`);
    await Deno.writeTextFile(`${folder}.new/c.yaml`, text);
    await Deno.rename(folder, `${folder}.old`);
    await Deno.rename(`${folder}.new`, folder);
  },
};

for (const [how, write] of Object.entries(WRITES)) {
  Deno.test(`watchConfiguration() sees a file that is ${how}, again and again`, () =>
    withFolder(async (outer) => {
      await Deno.mkdir(`${outer}/conf`);
      const path = `${outer}/conf/c.yaml`;
      await Deno.writeTextFile(path, HEAD);
      await using watched = await Watched.start(path);
      for (const cidr of ["10.1.0.0/16", "10.2.0.0/16"]) {
        await write(path, `${HEAD}clusterCIDR: ${cidr}\n`);
        await until(() => watched.clusterCidr === cidr);
        await Deno.remove(`${outer}/conf.old`, { recursive: true }).catch(() => {});
      }
      assertEquals(watched.applied.map(({ fields }) => fields), ["clusterCIDR", "clusterCIDR"]);
      assertEquals(watched.results, ["applied", "applied"]);
    }));
}

Deno.test("watchConfiguration() sees the swap of a ConfigMap's symlink, and the old folder's end", () =>
  withFolder(async (folder) => {
    const mount = async (name: string, text: string) => {
      await Deno.mkdir(`${folder}/${name}`);
      await Deno.writeTextFile(`${folder}/${name}/config.conf`, text);
      await Deno.symlink(name, `${folder}/..data_tmp`);
      await Deno.rename(`${folder}/..data_tmp`, `${folder}/..data`);
    };
    await mount("..2026_1", HEAD);
    await Deno.symlink("..data/config.conf", `${folder}/config.conf`);
    await using watched = await Watched.start(`${folder}/config.conf`);
    for (const generation of [2, 3, 4]) {
      const cidr = `10.${generation}.0.0/16`;
      await mount(`..2026_${generation}`, `${HEAD}clusterCIDR: ${cidr}\n`);
      await Deno.remove(`${folder}/..2026_${generation - 1}`, { recursive: true });
      await until(() => watched.clusterCidr === cidr);
    }
  }));

Deno.test("watchConfiguration() keeps the last good configuration while the file is wrong or gone", () =>
  withFolder(async (folder) => {
    const path = `${folder}/c.yaml`;
    await Deno.writeTextFile(path, `${HEAD}clusterCIDR: 10.1.0.0/16\n`);
    await using watched = await Watched.start(path);
    for (
      const [text, expected] of [
        ["", "found none"],
        ["}{", "Cannot read YAML"],
        [`${HEAD}oomScoreAdj: 5000\n`, "c.yaml:3:1: oomScoreAdj: Expected a number"],
        [`${HEAD}clusterCIDR: [`, "Cannot read YAML"],
      ]
    ) {
      watched.forget();
      await Deno.writeTextFile(path, text!);
      await until(() => watched.lines.length > 0);
      assertStringIncludes(
        watched.lines[0]!,
        "is invalid; the last valid configuration stays in use",
      );
      assertStringIncludes(watched.lines[0]!, expected!);
    }
    assertEquals(new Set(watched.results), new Set(["refused"]));
    watched.forget();
    await Deno.remove(path);
    await until(() => watched.lines.length > 0);
    assertStringIncludes(
      watched.lines[0]!,
      "was removed; the last valid configuration stays in use",
    );
    assertEquals(watched.applied, []);
    await Deno.writeTextFile(path, `${HEAD}clusterCIDR: 10.2.0.0/16\n`);
    await until(() => watched.clusterCidr === "10.2.0.0/16");
  }));

Deno.test("watchConfiguration() names three problems of many, so that the log has room for the next try", () =>
  withFolder(async (folder) => {
    const path = `${folder}/c.yaml`;
    await Deno.writeTextFile(path, HEAD);
    await using watched = await Watched.start(path);
    watched.forget();
    const five = ["bindAddress", "mode", "portRange", "clusterCIDR", "hostnameOverride"];
    await Deno.writeTextFile(path, HEAD + five.map((field) => `${field}: 5\n`).join(""));
    await until(() => watched.lines.length > 0);
    assertEquals(watched.lines.length, 3);
    assertEquals(watched.more, [undefined, undefined, 2]);
  }));

Deno.test("watchConfiguration() reads the last of 100 rapid writes within a few checks", () =>
  withFolder(async (folder) => {
    const path = `${folder}/c.yaml`;
    await Deno.writeTextFile(path, HEAD);
    await using watched = await Watched.start(path);
    for (let index = 1; index <= 100; index++) {
      await Deno.writeTextFile(path, `${HEAD}clusterCIDR: 10.${index}.0.0/16\n`);
    }
    await until(() => watched.clusterCidr === "10.100.0.0/16");
    assert(watched.applied.length <= 20, `${watched.applied.length} looks`);
  }));

Deno.test("watchConfiguration() ends with the names of the fields that need a start", () =>
  withFolder(async (folder) => {
    const path = `${folder}/c.yaml`;
    await Deno.writeTextFile(path, HEAD);
    await using watched = await Watched.start(path);
    await Deno.writeTextFile(
      path,
      `${HEAD}mode: nftables\nclusterCIDR: 10.0.0.0/8\nclientConnection: {qps: 7}\n`,
    );
    const error = await assertRejects(() => watched.ended(), ConfigurationChanged);
    assertEquals(error.fields, ["mode", "clientConnection.qps"]);
    assertStringIncludes(error.message, "mode, clientConnection.qps changed, which");
    assertEquals([watched.applied, watched.results], [[], ["restart"]]);
  }));

Deno.test("watchConfiguration() does nothing when only words, blocks of other modes or the name of the mode change", () =>
  withFolder(async (folder) => {
    const path = `${folder}/c.yaml`;
    await Deno.writeTextFile(path, `${HEAD}mode: userspace\n`);
    await using watched = await Watched.start(path);
    const texts = [
      `${HEAD}# a word\nmode: "userspace"\n`,
      `${HEAD}mode: userspace\nipvs: {scheduler: sh}\nnftables: {syncPeriod: 1m}\n`,
      `${HEAD}mode: userspace\nwinkernel: {networkName: a}\noomScoreAdj: -999\n`,
    ];
    for (const text of texts) {
      watched.forget();
      await Deno.writeTextFile(path, text);
      await until(() => watched.lines.length > 0);
      assertStringIncludes(watched.lines[0]!, "has the same content as before");
    }
    assertEquals(watched.applied, []);
    assertEquals(watched.results, ["unchanged", "unchanged", "unchanged"]);
  }));

const BEFORE = defaultConfiguration();

Deno.test("changedFields() separates fields that a running process applies from those that need a start", () => {
  const after: KubeProxyConfiguration = {
    ...BEFORE,
    bindAddress: "::",
    clusterCIDR: "10.0.0.0/8",
    detectLocal: { bridgeInterface: "cni0", interfaceNamePrefix: "veth" },
    nodePortAddresses: ["primary"],
    featureGates: { AllAlpha: true },
    logging: { ...BEFORE.logging, verbosity: 4, format: "json" },
    iptables: { ...BEFORE.iptables, masqueradeAll: true, syncPeriod: 1 },
  };
  assertEquals(changedFields(BEFORE, after, "iptables"), {
    applicable: [
      "logging.verbosity",
      "iptables.masqueradeAll",
      "detectLocal.bridgeInterface",
      "detectLocal.interfaceNamePrefix",
      "clusterCIDR",
      "nodePortAddresses",
    ],
    others: ["featureGates.AllAlpha", "logging.format", "bindAddress", "iptables.syncPeriod"],
  });
});

Deno.test("changedFields() applies the denial of policies, and restarts for their source", () => {
  const policy = (fields: Partial<KubeProxyConfiguration["networkPolicy"]>) => ({
    ...BEFORE,
    networkPolicy: { ...BEFORE.networkPolicy, ...fields },
  });
  const on = policy({ enabled: true });
  const after = policy({
    enabled: true,
    mode: "iptables",
    start: "closed",
    deny: "drop",
    logPerMinute: 9,
    logGroup: 9,
    cutConnections: false,
    kubeconfig: "/k",
  });
  assertEquals(changedFields(on, after, "userspace"), {
    applicable: ["start", "deny", "logPerMinute", "cutConnections"].map((field) =>
      `networkPolicy.${field}`
    ),
    others: ["mode", "logGroup", "kubeconfig"].map((field) => `networkPolicy.${field}`),
  });
  assertEquals(changedFields(BEFORE, on, "nftables").others, ["networkPolicy.enabled"]);
  const off = policy({ mode: "iptables", deny: "drop" });
  assertEquals(changedFields(BEFORE, off, "nftables"), { applicable: [], others: [] });
});

Deno.test("changedFields() ignores blocks of other modes, and unread fields", () => {
  const after: KubeProxyConfiguration = {
    ...BEFORE,
    portRange: "1-2",
    winkernel: { ...BEFORE.winkernel, sourceVip: "10.0.0.1" },
    iptables: { ...BEFORE.iptables, masqueradeAll: true },
    ipvs: { ...BEFORE.ipvs, scheduler: "sh" },
    nftables: { ...BEFORE.nftables, masqueradeAll: true },
  };
  const fieldsIn = (mode: "iptables" | "ipvs" | "nftables" | "userspace") => {
    const { applicable, others } = changedFields(BEFORE, after, mode);
    return [...applicable, ...others];
  };
  assertEquals(fieldsIn("nftables"), ["nftables.masqueradeAll"]);
  assertEquals(fieldsIn("ipvs"), ["iptables.masqueradeAll", "ipvs.scheduler"]);
  assertEquals(fieldsIn("userspace"), ["iptables.masqueradeAll"]);
});

Deno.test("changedFields() applies routing, unless it needs what the process did not start with", () => {
  const { routing: defaults } = BEFORE;
  type Routing = typeof defaults;
  const changed = (before: Partial<Routing>, after: Partial<Routing>) => {
    const of = (fields: Partial<Routing>) => ({ ...BEFORE, routing: { ...defaults, ...fields } });
    return changedFields(of(before), of(after), "nftables");
  };
  const on = { enabled: true, pools: ["192.0.2.0/28"] };
  const bgp = { ...defaults.bgp, enabled: true };
  const imports = { ...bgp.imports, external: ["10.0.0.0/8"] };
  /** Changes, and the fields that are applied. */
  const applied: readonly [Partial<Routing>, Partial<Routing>, readonly string[]][] = [
    [{}, { pools: on.pools }, []],
    [on, { ...on, pools: ["192.0.2.0/27"] }, ["routing.pools"]],
    [on, { enabled: true }, ["routing.pools"]],
    [on, { ...on, loadBalancerClasses: ["metallb.io/metallb"] }, ["routing.loadBalancerClasses"]],
    [{ ...on, bgp }, on, ["routing.bgp.enabled"]],
    [{ ...on, bgp }, { ...on, bgp: { ...bgp, peers: ["64513@192.0.2.1"] } }, ["routing.bgp.peers"]],
    [{ ...on, bgp }, { ...on, bgp: { ...bgp, imports } }, ["routing.bgp.imports.external"]],
  ];
  for (const [before, after, applicable] of applied) {
    assertEquals(changed(before, after), { applicable, others: [] }, `${applicable}`);
  }
  /** Changes, and the fields that need a start. */
  const refused: readonly [Partial<Routing>, Partial<Routing>, readonly string[]][] = [
    [{}, on, ["routing.enabled", "routing.pools"]],
    [{ enabled: true }, on, ["routing.pools"]],
    [{ ...on, announce: "none" }, on, ["routing.announce"]],
    [on, { ...on, bgp }, ["routing.bgp.enabled"]],
    [{ ...on, bgp }, { ...on, bgp: { ...bgp, configFile: "/x" } }, ["routing.bgp.configFile"]],
  ];
  for (const [before, after, others] of refused) {
    assertEquals(changed(before, after), { applicable: [], others }, `${others}`);
  }
});
