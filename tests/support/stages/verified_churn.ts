/**
 * A backend on the kernel's own tables that compares all of its rules after each sync, while Services
 * change all the time and some writes fail. Nothing else writes to the tables, so each difference that
 * a comparison finds is a false alarm.
 *
 * With `KUBE_RELAY_SEED` the changes of an earlier run are made again. With `KUBE_RELAY_SOAK_MINUTES`
 * the changes go on for so long. With `KUBE_RELAY_SABOTAGE=1` a chain is emptied on the way, and the
 * test has to fail.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { IptablesBackend } from "../../../backends/iptables/backend.ts";
import { NftablesBackend } from "../../../backends/nftables/backend.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import {
  CommandError,
  type CommandRunner,
  systemCommandRunner,
} from "../../../lib/os/command_runner.ts";
import type { Backend } from "../../../lib/proxy/backend.ts";
import type { ProxyPlan, SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import { SyncFailure } from "../../../lib/engine/sync_failure.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { seededRandom } from "./churn.ts";
import { eventually } from "../eventually.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import type { Namespace } from "./netns.ts";
import type { RuleMode } from "./rule_modes.ts";
import {
  testEndpoint,
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../builders/service_plans.ts";

const SERVICES = 40;
const PODS = 9;
/** A sync with its comparison takes about a tenth of a second: a hundred changes a second. */
const CHANGES_PER_SYNC = 10;
/** Without `KUBE_RELAY_SOAK_MINUTES`. */
const SYNCS = 20;
/** One sync in this many fails, with or without an effect. */
const FAILS_ONE_OF = 6;
/** The pauses of a watch take seconds. */
const LONGEST_SLEEP_MS = 5;

const SHARED: Readonly<Record<IpFamily, Partial<SharedPlan>>> = {
  IPv4: shared("10.0.0.0/8", "172.30.0.0/16"),
  IPv6: shared("fd00:10::/64", "fd00:172:30::/112"),
};

function shared(pods: string, services: string): Partial<SharedPlan> {
  const localTraffic = { kind: "byCidr" as const, cidr: parseCidr(pods) };
  return { localTraffic, serviceCidrs: [parseCidr(services)] };
}

/** Makes the changes in both families at once, as one process does. Throws at a false alarm. */
export async function runVerifiedChurn(node: Namespace, mode: RuleMode): Promise<void> {
  const seed = Number(Deno.env.get("KUBE_RELAY_SEED") ?? Math.floor(Math.random() * 2 ** 32));
  // deno-lint-ignore no-console -- to make the same changes again
  console.log(`KUBE_RELAY_SEED=${seed}`);
  const results = await Promise.allSettled(IP_FAMILIES.map(async (family, index) => {
    await using stage = new VerifiedChurn(node, { mode, family, seed: seed + index });
    await stage.run();
  }));
  for (const result of results) if (result.status === "rejected") throw result.reason;
}

/** Settings of a start. */
interface LifeSettings {
  readonly masqueradeBit?: number;
  readonly shared?: (family: IpFamily) => Partial<SharedPlan>;
}

/** Each differs from the one before in one setting; the first is repeated at the end. */
const LIVES: Readonly<Record<string, LifeSettings>> = {
  "the first settings": {},
  "node ports on one address": { shared: nodePortsOn("192.168.0.2", "2001:db8::2") },
  "node ports on all addresses again": {},
  "node ports on a range of two addresses": {
    shared: (family) => ({
      ...nodePortsOn("192.168.0.2", "2001:db8::2")(family),
      nodePortAddresses:
        (family === "IPv4" ? ["192.168.0.2", "192.168.0.3"] : ["2001:db8::2", "2001:db8::3"])
          .map(parseIpAddress),
    }),
  },
  "other ranges of Services": {
    shared: (family) => ({
      serviceCidrs: [parseCidr(family === "IPv4" ? "172.30.0.0/17" : "fd00:172:30::/64")],
    }),
  },
  "no range of pods": { shared: () => ({ localTraffic: { kind: "none" } }) },
  "pods behind a bridge": {
    shared: () => ({ localTraffic: { kind: "byBridge", interfaceName: "cni0" } }),
  },
  "another bit of the mark": { masqueradeBit: 15 },
  "the first settings again": {},
};

function nodePortsOn(ipv4: string, ipv6: string) {
  return (family: IpFamily): Partial<SharedPlan> => {
    const address = parseIpAddress(family === "IPv4" ? ipv4 : ipv6);
    const range = parseCidr(`${address}/${family === "IPv4" ? 32 : 128}`);
    return {
      nodePortRanges: { kind: "cidrs", cidrs: [range] },
      nodePortAddresses: [address],
    };
  };
}

/**
 * Starts over the rules of a start with other settings, again and again, and then has one process get
 * the same settings one after the other. All rules are compared a few times with each. Throws at a
 * false alarm.
 */
export async function runOtherSettings(
  node: Namespace,
  mode: RuleMode,
): Promise<void> {
  for (const family of IP_FAMILIES) {
    for (const [name, settings] of Object.entries(LIVES)) {
      await using life = new VerifiedChurn(node, { mode, family, seed: 1, settings });
      await life.live(`after a start with ${name}`);
    }
    await using running = new VerifiedChurn(node, { mode, family, seed: 1 });
    for (const [name, settings] of Object.entries(LIVES)) {
      if (settings.masqueradeBit !== undefined) continue;
      await running.live(`running, with ${name}`, settings);
    }
  }
}

/** One family of it. */
class VerifiedChurn implements AsyncDisposable {
  readonly #node: Namespace;
  readonly #mode: RuleMode;
  readonly #family: IpFamily;
  readonly #random: () => number;
  readonly #backend: Backend;
  readonly #logger = new MemoryLogger();
  readonly #drift: unknown[] = [];
  readonly #services = new Map<number, ServicePlan>();
  /** Pods behind each Service. */
  readonly #pods = new Map<number, readonly number[]>();
  readonly #masqueradeBit: number;
  #shared: SharedPlan;
  #synced: ProxyPlan | undefined;
  #sleeps = 0;
  #readings = 0;
  #fault: "before" | "after" | undefined;

  constructor(
    node: Namespace,
    { mode, family, seed, settings = {} }: {
      readonly mode: RuleMode;
      readonly family: IpFamily;
      readonly seed: number;
      readonly settings?: LifeSettings;
    },
  ) {
    this.#node = node;
    this.#mode = mode;
    this.#family = family;
    this.#random = seededRandom(seed);
    this.#shared = sharedOf(family, settings);
    this.#masqueradeBit = settings.masqueradeBit ?? 14;
    this.#backend = this.#create();
  }

  async run(): Promise<void> {
    const soakMs = Number(Deno.env.get("KUBE_RELAY_SOAK_MINUTES") ?? 0) * 60_000;
    const start = performance.now();
    const passed = () => performance.now() - start;
    await this.#backend.start();
    let [changes, syncs, failures] = [0, 0, 0];
    while (syncs < SYNCS || passed() < soakMs) {
      for (let change = 0; change < CHANGES_PER_SYNC; change++) this.#change();
      changes += CHANGES_PER_SYNC;
      const done = await this.#sync();
      if (done === undefined) failures++;
      else syncs++;
      if (syncs === SYNCS / 2 && Deno.env.get("KUBE_RELAY_SABOTAGE") === "1") {
        await this.#sabotage();
      }
      const before = this.#readings;
      await this.#verify();
      if (done) assert(this.#readings > before, "everything was read after the sync");
      const warnings = JSON.stringify(this.#logger.lines.filter(({ level }) => level === "warn"));
      const when = `after ${syncs} syncs, the last ${JSON.stringify(done)}`;
      assertEquals(this.#drift, [], `false alarm ${when}: ${warnings}`);
    }
    const rate = (changes * 1000 / passed()).toFixed(0);
    // deno-lint-ignore no-console -- the figures
    console.log(
      `${this.#family}: ${changes} changes, ${rate} a second; ${syncs} syncs and ${failures} that ` +
        `failed; ${this.#readings} readings, no false alarm`,
    );
    const warnings = this.#logger.lines.filter(({ level }) => level === "warn");
    assertEquals(warnings, []);
  }

  /** One sync of the same Services, and some comparisons. */
  async live(name: string, settings?: LifeSettings): Promise<void> {
    for (let number = 1; number <= SERVICES; number++) {
      this.#services.set(number, this.#plan(number, [1, 2]));
    }
    if (settings) this.#shared = sharedOf(this.#family, settings);
    if (this.#synced === undefined) await this.#backend.start();
    while (await this.#sync() === undefined);
    for (let time = 0; time < 3; time++) {
      const before = this.#readings;
      await this.#verify();
      assert(this.#readings > before, "everything was read");
    }
    const warnings = this.#logger.lines.filter(({ level }) => level === "warn");
    assertEquals([this.#drift, warnings], [[], []], `${this.#family}, ${name}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#backend[Symbol.asyncDispose]();
  }

  /** One pod comes or goes behind a Service, or the Service goes. */
  #change(): void {
    const pick = (count: number) => Math.floor(this.#random() * count);
    const number = 1 + pick(SERVICES);
    if (this.#random() < 0.15) {
      this.#services.delete(number);
      return;
    }
    const pod = 1 + pick(PODS);
    const pods = this.#pods.get(number) ?? [];
    const others = pods.filter((each) => each !== pod);
    const now = others.length < pods.length ? others : [...pods, pod];
    this.#pods.set(number, now);
    this.#services.set(number, this.#plan(number, now.toSorted()));
  }

  #plan(number: number, pods: readonly number[]): ServicePlan {
    const isIpv4 = this.#family === "IPv4";
    const all = pods.map((pod) =>
      testEndpoint(`${isIpv4 ? `10.1.0.${pod}` : `[fd00:10::${pod}]`}:${8000 + number}`)
    );
    const forward = (endpoints: typeof all) =>
      endpoints.length > 0 ? { kind: "forward" as const, endpoints } : { kind: "reject" as const };
    const isLocal = number % 4 === 0;
    return testServicePlan({
      name: `service-${number}`,
      clusterIp: isIpv4 ? `172.30.0.${number}` : `fd00:172:30::${number}`,
      ...(number % 2 === 0 && { nodePort: 30_000 + number }),
      ...(number % 3 === 0 && { affinityTimeoutSeconds: 60 }),
      masqueradeInternal: "off-cluster",
      externalTrafficPolicy: isLocal ? "Local" : "Cluster",
      reachable: all,
      internal: forward(all),
      external: forward(isLocal ? all.filter((_, index) => index % 2 === 0) : all),
      externalFromCluster: forward(all),
    });
  }

  /** Returns the writes; `undefined` = the sync failed, and the next one repeats its changes. */
  async #sync(): Promise<unknown> {
    const services = new Map([...this.#services.values()].map((plan) => [plan.key, plan]));
    const plan: ProxyPlan = { family: this.#family, services, shared: this.#shared };
    const isFirst = this.#synced === undefined;
    if (!isFirst && this.#random() * FAILS_ONE_OF < 1) {
      this.#fault = this.#random() < 0.5 ? "before" : "after";
    }
    try {
      const { operations } = await this.#backend.sync(plan, testPlanChanges(plan, this.#synced));
      this.#synced = plan;
      return operations;
    } catch (error) {
      if (!(error instanceof SyncFailure)) throw error;
      return undefined;
    } finally {
      this.#fault = undefined;
    }
  }

  /** Has everything compared, unless the watch leaves that to the next sync. */
  async #verify(): Promise<void> {
    const before = this.#sleeps;
    this.#backend.recheck?.();
    // A look that began before this may end with a sleep of its own.
    await eventually("the watch has had its turn", () => this.#sleeps >= before + 2, {
      deadlineMs: 60_000,
    });
  }

  async #sabotage(): Promise<void> {
    const isIpv4 = this.#family === "IPv4";
    const { mode, othersUse } = this.#mode;
    const [program, ...args] = mode === "nftables"
      ? ["nft", "flush", "chain", isIpv4 ? "ip" : "ip6", "kube-relay", "services"]
      : [`${isIpv4 ? "iptables" : "ip6tables"}-${othersUse}`, "-w", "-t", "nat", "-F"]
        .concat("KUBE-SERVICES");
    await this.#node.output(program!, args);
  }

  #create(): Backend {
    const edges = {
      clock: this.#hurriedClock(),
      commands: this.#commands(),
      logger: this.#logger,
      random: () => 0,
      onDrift: (figures: unknown) => void this.#drift.push(figures),
    };
    const options = {
      family: this.#family,
      masqueradeBit: this.#masqueradeBit,
      syncPeriodMs: 1_000,
    };
    return this.#mode.mode === "nftables"
      ? new NftablesBackend(edges, options)
      : new IptablesBackend(edges, { ...options, localhostNodePorts: false });
  }

  /** The watch does not sleep for long by it. */
  #hurriedClock(): Clock {
    return {
      ...systemClock,
      sleep: (ms, signal) => {
        this.#sleeps++;
        return systemClock.sleep(Math.min(ms, LONGEST_SLEEP_MS), signal);
      },
    };
  }

  /** Runs commands in the namespace. A write fails on purpose where a fault is planned. */
  #commands(): CommandRunner {
    return {
      run: async (program, args, options) => {
        if (/-save$/.test(program) || args.join(" ").includes("list table")) this.#readings++;
        const isWrite = options?.stdin !== undefined &&
          (/-restore$/.test(program) || args[0] === "-f");
        const fault = isWrite ? this.#fault : undefined;
        if (fault !== undefined) this.#fault = undefined;
        if (fault === "before") throw failed(program, args);
        const line = ["netns", "exec", this.#node.name, program, ...args];
        const result = await systemCommandRunner.run("ip", line, options);
        if (fault === "after") throw failed(program, args);
        return result;
      },
    };
  }
}

function sharedOf(family: IpFamily, { shared }: LifeSettings): SharedPlan {
  return testProxyPlan([], { family, shared: { ...SHARED[family], ...shared?.(family) } }).shared;
}

function failed(program: string, args: readonly string[]): CommandError {
  return new CommandError(program, args, "timeout", "it did not end in time");
}
