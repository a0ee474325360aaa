/** A reflector of Services in front of a fake API server. */
import { SERVICE, type Service } from "../../../lib/api/kinds/service.ts";
import { KubeClient } from "../../../lib/kube/client.ts";
import { openTransport } from "../../../lib/kube/api_transport.ts";
import type { HttpTransport } from "../../../lib/kube/transport.ts";
import { Informer } from "../../../lib/kube/informer.ts";
import type { ListOptions } from "../../../lib/kube/informer_set.ts";
import { Reflector, type ReflectorOptions } from "../../../lib/kube/reflector.ts";
import { collectionPath } from "../../../lib/api/kind.ts";
import { serviceSubscriptions } from "../../../lib/app/service/service_subscriptions.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import type { RawObject } from "../../conformance/server.ts";
import { eventually } from "../eventually.ts";
import { FakeApiServer } from "../fakes/fake_api_server.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { StaticAuth } from "../builders/static_auth.ts";

const TIMING = { backoff: { initialMs: 20, maxMs: 100 } };

/** The path of the list of Services. */
export const SERVICES_PATH = collectionPath(SERVICE);

/** The subscription to Services. */
export const SERVICES = serviceSubscriptions("node-1", false)
  .get(SERVICE)!;

/** The options of a reflector under test. */
export type ReflectorStageOptions = Partial<ReflectorOptions<Service>> & {
  readonly selection?: ListOptions;
  /** @default {the machine's clock, which notes the waits} */
  readonly clock?: Clock;
};

/** A reflector of Services that follows a fake server. */
export class ReflectorStage implements AsyncDisposable {
  readonly handled: string[] = [];
  /** The waits of the reflector so far, in milliseconds. */
  readonly waits: number[] = [];
  readonly logger = new MemoryLogger();
  readonly informer = new Informer<Service>({
    onAdd: ({ metadata }) => this.handled.push(`add ${metadata.name}`),
    onUpdate: (_, { metadata }) => this.handled.push(`update ${metadata.name}`),
    onDelete: ({ metadata }) => this.handled.push(`delete ${metadata.name}`),
    onSynced: () => this.handled.push("synced"),
  });
  readonly #abort = new AbortController();
  readonly #transport: HttpTransport;
  readonly #running: Promise<void>;
  readonly reflector: Reflector<Service>;

  constructor(readonly fake: FakeApiServer, options: ReflectorStageOptions) {
    const auth = new StaticAuth(fake.url, { ca: fake.ca });
    this.#transport = openTransport(systemClock, auth);
    const client = new KubeClient({ clock: systemClock, auth, transport: this.#transport });
    const { logger, informer } = this;
    const clock: Clock = options.clock ?? {
      ...systemClock,
      sleep: (ms, signal) => {
        this.waits.push(ms);
        return systemClock.sleep(ms, signal);
      },
    };
    this.reflector = new Reflector({ clock, logger, client, random: () => 0 }, {
      subscription: { spec: SERVICE, options: options.selection ?? SERVICES, informer },
      slim: (raw) => raw as Service,
      ...options,
      timing: { ...TIMING, ...options.timing },
    });
    this.#running = this.reflector.run(this.#abort.signal);
  }

  /**
   * Lists and watches of Services so far, as `list` and `watch VERSION`; without the lists of one
   * object that ask for the server's version.
   */
  get asked(): string[] {
    const requests = this.fake.requests.filter(({ path, query }) =>
      path === SERVICES_PATH && query.limit !== "1"
    );
    return requests.map(({ query }) => {
      if (query.sendInitialEvents) return "streaming list";
      return query.watch ? `watch ${query.resourceVersion}` : "list";
    });
  }

  async has(...names: string[]): Promise<void> {
    await eventually(
      `the Services are ${names}`,
      () =>
        [...this.informer.values()].map(({ metadata }) => metadata.name).join() === names.join(),
    );
  }

  /** Waits until the log contains a failure with this text; the status forgets it soon. */
  async failed(part: string): Promise<void> {
    await eventually(
      `it fails with '${part}'`,
      () => this.logger.lines.some(({ fields }) => String(fields.error).includes(part)),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await this.#running;
    await this.#transport[Symbol.asyncDispose]();
  }
}

/** Runs a test with a server that holds Services `a` and `b`, listed already unless `early` is given. */
export async function followServices(
  run: (stage: ReflectorStage, fake: FakeApiServer) => Promise<void>,
  { early, scheme = "https", ...options }: ReflectorStageOptions & {
    readonly early?: (fake: FakeApiServer) => void;
    readonly scheme?: "https" | "http";
  } = {},
): Promise<void> {
  await using fake = await FakeApiServer.start({ scheme });
  for (const name of ["a", "b"]) fake.store.create(service(name));
  early?.(fake);
  await using stage = new ReflectorStage(fake, options);
  if (!early) {
    await eventually("everything is listed", () => stage.informer.synced);
    stage.handled.length = 0;
  }
  await run(stage, fake);
}

/** The Service `default/NAME`, as it is written to the fake. */
export function service(name: string, clusterIP = "10.0.0.1"): RawObject {
  const metadata = { name, namespace: "default" };
  return { apiVersion: "v1", kind: "Service", metadata, spec: { clusterIP } };
}
