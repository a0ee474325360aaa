/**
 * LoadBalancerPools and BgpPeers on the real API machinery: what their definitions refuse, and how
 * their status is written.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import type { RoutedService } from "../../lib/api/kinds/routed_service.ts";
import { ObjectSettings } from "../../lib/app/routing/object_settings.ts";
import { defaultConfiguration } from "../../lib/config/configuration.ts";
import { routingSettingsOf } from "../../lib/config/parse_routing.ts";
import type { RoutingConfiguration } from "../../lib/config/routing.ts";
import { ApiSource } from "../../lib/kube/api_source.ts";
import { InformerSet } from "../../lib/kube/informer_set.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { readManifest } from "../support/docs/deploy_files.ts";
import { eventually } from "../support/eventually.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { type ApiMachinery, startApiMachinery } from "../support/stages/api_machinery.ts";
import { tokenAuth } from "./machinery_auth.ts";
import type { RawObject } from "./server.ts";

const API = "kube-relay.io/v1alpha1";

function pool(name: string, spec: object): RawObject {
  return { apiVersion: API, kind: "LoadBalancerPool", metadata: { name }, spec };
}

function peer(name: string, spec: object): RawObject {
  return { apiVersion: API, kind: "BgpPeer", metadata: { name }, spec };
}

const POOL = { addresses: ["192.0.2.0/30"] };
const PEER = { address: "192.0.2.1", as: 64513 };

/** Objects that the definitions refuse, and the words of the server. */
const REFUSED: readonly (readonly [object: RawObject, says: string])[] = [
  [pool("a.b", POOL), "metadata.name"],
  [pool("a".repeat(64), POOL), "metadata.name"],
  [pool("a", {}), "spec.addresses: Required value"],
  [pool("a", { addresses: [] }), "spec.addresses"],
  [pool("a", { addresses: Array(65).fill("192.0.2.1") }), "spec.addresses: Too many"],
  [pool("a", { addresses: ["example.com"] }), "spec.addresses[0]"],
  [pool("a", { ...POOL, announce: "ospf" }), "spec.announce: Unsupported value"],
  [pool("a", { ...POOL, priority: -1 }), "spec.priority"],
  [pool("a", { ...POOL, adresses: [] }), 'unknown field "spec.adresses"'],
  [
    pool("a", { ...POOL, nodeSelector: { matchExpressions: [{ key: "a", operator: "Is" }] } }),
    "operator: Unsupported value",
  ],
  [peer("1tor", PEER), "metadata.name"],
  [peer("tor_1", PEER), "metadata.name"],
  [peer("tor", { as: 1 }), "spec.address: Required value"],
  [peer("tor", { ...PEER, as: 0 }), "spec.as"],
  [peer("tor", { ...PEER, holdTimeSeconds: 2 }), "spec.holdTimeSeconds"],
  [peer("tor", { ...PEER, passwordFile: "/x", passwordSecret: {} }), "exclude each other"],
  [peer("tor", { ...PEER, otherNextHop: "fd00::1" }), "otherNextHop needs bothFamilies"],
  [peer("tor", { ...PEER, passwordFile: "secret" }), "spec.passwordFile"],
];

/** Creates the definitions, and waits until their objects are served. */
async function define(server: ApiMachinery): Promise<void> {
  for (const definition of await readManifest("kubernetes/crds.yaml")) {
    await server.create(definition);
  }
  for (const object of [pool("a", POOL), peer("a", PEER)]) {
    await eventually(
      `there are objects of kind ${object.kind}`,
      async () => await createStrictly(server, object) === "201",
    );
  }
}

async function createStrictly(server: ApiMachinery, object: RawObject): Promise<string> {
  const plural = `${object.kind.toLowerCase()}s`;
  const path = `/apis/${API}/${plural}?fieldValidation=Strict&dryRun=All`;
  const { status, body } = await server.admin.post(path, object);
  return status === 201 ? "201" : body;
}

/** Defines the tests on the built API machinery. */
export function defineRoutingObjectTests(program: string): void {
  Deno.test("the definitions of routing objects refuse what cannot be used", async (t) => {
    await using server = await startApiMachinery({ program });
    await define(server);
    for (const [object, says] of REFUSED) {
      await t.step(`${object.kind}: ${says}`, async () => {
        assertStringIncludes(
          JSON.stringify(JSON.parse(await createStrictly(server, object)).message)
            .replaceAll('\\"', '"'),
          says,
        );
      });
    }
  });

  Deno.test("routing objects are read, and their status is written by the leader and each node", async () => {
    await using server = await startApiMachinery({ program });
    await define(server);
    const [office, tor] = [pool("office", POOL), peer("tor", PEER)];
    for (const object of [office, tor]) await server.create(object);
    await using leader = new Member(server, "node-a");
    await using other = new Member(server, "node-b");
    await eventually(
      "both are read",
      () => `${leader.names} ${other.names}` === "office,tor office,tor",
    );
    leader.lead();
    const reason = async (object: RawObject) =>
      (await leader.statusOf(object)).conditions?.[0]?.reason;
    for (const object of [office, tor]) {
      await eventually("it is used", async () => await reason(object) === "Used");
    }
    leader.settings.onService(undefined, service("192.0.2.1"));
    await eventually("its use is written", async () => {
      const { ipv4 } = await leader.statusOf(office);
      return JSON.stringify(ipv4) === '{"total":"4","used":1}';
    });
    // Each node writes its own key, at the same time.
    leader.report();
    other.report();
    await eventually("both sessions are there", async () => {
      const { sessions, established } = await leader.statusOf(tor);
      return JSON.stringify(sessions) === '{"node-a":"Established","node-b":"Established"}' &&
        established === "2 of 2";
    });
    // A status is no specification: no write makes a new generation.
    const { metadata } = await leader.read(tor);
    assertEquals(metadata.generation, 1);
    // Another object that wants the addresses of one in use.
    const late = pool("late", { addresses: ["192.0.2.0"] });
    await server.create(late);
    await eventually("it is refused", async () => await reason(late) === "NotUsed");
    const { conditions } = await leader.statusOf(late);
    assertStringIncludes(conditions![0]!.message, "overlaps a range of LoadBalancerPool office");
    assertEquals(leader.names, "office,tor");
    await leader.change(office, { addresses: ["192.0.2.64/33"] });
    await eventually(
      "its last version is used",
      async () => await reason(office) === "LastGoodVersionUsed",
    );
    assertEquals(leader.names, "office,tor");
    // A node that starts now has no last version.
    await leader.change(office, { addresses: ["192.0.2.64/30"] });
    await eventually("it is used again", async () => await reason(office) === "Used");
    await eventually("and so is the late one", async () => await reason(late) === "Used");
    assertEquals(
      leader.logger.lines.filter(({ message }) => message.startsWith("Cannot write")),
      [],
    );
  });
}

function service(ip: string) {
  return {
    metadata: { name: "web", namespace: "default" },
    spec: {},
    status: { loadBalancer: { ingress: [{ ip }] } },
  } as RoutedService;
}

/** The part of a process that reads the objects and writes their status. Its time runs faster. */
class Member implements AsyncDisposable {
  readonly logger = new MemoryLogger();
  readonly settings: ObjectSettings;
  readonly #abort = new AbortController();
  readonly #source: ApiSource;
  readonly #tasks: Promise<void>[] = [];
  #routing: RoutingConfiguration;

  constructor(server: ApiMachinery, readonly name: string) {
    const { routing } = defaultConfiguration();
    const configured = { ...routing, bgp: { ...routing.bgp, enabled: true } };
    this.#routing = configured;
    const clock = {
      ...systemClock,
      sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(Math.min(ms, 50), signal),
    };
    const informers = new InformerSet();
    const { logger } = this;
    this.settings = new ObjectSettings({ clock, logger, random: Math.random }, {
      ...{ informers, nodeName: name },
      onChange: () => {
        this.#routing = this.settings.join(configured);
        this.settings.setPools(routingSettingsOf(this.#routing).pools);
      },
      isNode: () => true,
      poolProblems: () => [],
    });
    const edges = { clock: systemClock, logger, auth: tokenAuth(server), random: Math.random };
    this.#source = new ApiSource(edges, { informers });
    this.#tasks.push(this.#source.run(this.#abort.signal));
  }

  /** The pools and peers that are used. */
  get names(): string {
    const { pools, bgp } = routingSettingsOf(this.#routing);
    return `${[...pools, ...bgp!.peers].map(({ name }) => name)}`;
  }

  lead(): void {
    this.#tasks.push(this.settings.lead(this.#source.client, this.#abort.signal));
  }

  report(): void {
    const peers = [{ name: "tor" }];
    const sessions = [{ peer: "tor", state: "Established" }];
    const backend = { sessions: () => Promise.resolve(sessions) };
    this.#tasks.push(
      this.settings.report(
        this.#source.client,
        { plan: { peers }, backend } as never,
        this.#abort.signal,
      ),
    );
  }

  async read(object: RawObject): Promise<RawObject> {
    return await this.#source.client.get(pathOf(object), this.#abort.signal) as RawObject;
  }

  async statusOf(object: RawObject) {
    return (await this.read(object))["status"] as {
      readonly conditions?: readonly { readonly reason: string; readonly message: string }[];
      readonly ipv4?: object;
      readonly sessions?: object;
      readonly established?: string;
    } | undefined ?? {};
  }

  async change(object: RawObject, spec: object): Promise<void> {
    await this.#source.client.patch(pathOf(object), { spec }, this.#abort.signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.settings.stop();
    this.#abort.abort();
    await Promise.all(this.#tasks);
  }
}

function pathOf({ kind, metadata: { name } }: RawObject): string {
  return `/apis/${API}/${kind.toLowerCase()}s/${name}`;
}
