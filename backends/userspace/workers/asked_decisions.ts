import type { WorkerChannel } from "../../../lib/os/worker_channel.ts";
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { EndpointAges } from "../balancing/endpoint_shares.ts";
import { type CommonDecisions, picksInCommon } from "../common_decisions.ts";
import {
  hasLimits,
  type LimitedPort,
  type Limits,
  type LimitTable,
  type ReachedLimit,
} from "../connection_limits.ts";
import { EndpointPicker, type EndpointPickerOptions, type Picker } from "../endpoint_picker.ts";
import type { MainSide, WorkerSide } from "./worker_protocol.ts";

/** The channel of a worker to the main thread. */
export type MainChannel = WorkerChannel<WorkerSide, MainSide>;

interface AskedDecisionsContext {
  readonly channel: MainChannel;
  /** The number of the forwarder that is made or updated for a ServicePort. */
  readonly numberOf: (key: ServicePortKey) => number | undefined;
}

/** Nothing is admitted while the limits are unknown. */
const UNKNOWN: ReachedLimit = { limit: "max-connections", bound: 0 };

/** Asks the main thread, in a worker. */
export class AskedDecisions implements CommonDecisions {
  readonly #context: AskedDecisionsContext;
  readonly #limits = new WeakMap<LimitedPort, Limits>();

  constructor(context: AskedDecisionsContext) {
    this.#context = context;
  }

  createPicker(plan: ServicePlan, options: EndpointPickerOptions): Picker {
    const { channel, numberOf } = this.#context;
    return new AskedPicker(channel, { plan, options, forwarder: numberOf(plan.key)! });
  }

  readonly limits: LimitTable = {
    update: (_service, { port, settings }) => {
      if (!hasLimits(settings)) return undefined;
      const known = this.#limits.get(port);
      const limits = known ?? this.#createLimits(this.#context.numberOf(port.key)!);
      this.#limits.set(port, limits);
      return limits;
    },
    // The main thread knows what was removed.
    leave() {},
  };

  #createLimits(forwarder: number): Limits {
    const { channel } = this.#context;
    return {
      isAsked: true,
      admit: (client) => channel.ask({ kind: "admit", forwarder, client }).catch(() => UNKNOWN),
      enter() {
        channel.tell({ kind: "enter", forwarder });
        return "";
      },
      leave: (client) => channel.tell({ kind: "leave", forwarder, client }),
    };
  }
}

/** Asks for each endpoint if the plan needs it, and picks in this thread otherwise. */
class AskedPicker implements Picker {
  readonly #channel: MainChannel;
  readonly #forwarder: number;
  readonly #local: EndpointPicker;
  #isAsked: boolean;

  constructor(channel: MainChannel, { plan, options, forwarder }: {
    readonly plan: ServicePlan;
    readonly options: EndpointPickerOptions;
    readonly forwarder: number;
  }) {
    this.#channel = channel;
    this.#forwarder = forwarder;
    this.#local = new EndpointPicker(plan, options);
    this.#isAsked = picksInCommon(plan);
  }

  /** The main thread counts what it picks. */
  get load(): Picker["load"] {
    if (!this.#isAsked) return this.#local.load;
    return this.#local.load && {
      add() {},
      remove: (endpoint: EndpointKey) =>
        this.#channel.tell({ kind: "release", forwarder: this.#forwarder, endpoint }),
    };
  }

  update(plan: ServicePlan, now: number): void {
    this.#isAsked = picksInCommon(plan);
    this.#local.update(plan, now);
  }

  skip(unhealthy: ReadonlySet<EndpointKey>, now: number): void {
    this.#local.skip(unhealthy, now);
  }

  restoreAges(ages: EndpointAges, now: number): void {
    this.#local.restoreAges(ages, now);
  }

  /** The main thread answers for this ServicePort. */
  remembered(): undefined {}

  pick(request: Parameters<Picker["pick"]>[0]): ReturnType<Picker["pick"]> {
    if (!this.#isAsked) return this.#local.pick(request);
    const { verdict, client, exclude } = request;
    const question = { forwarder: this.#forwarder, verdict, client, exclude };
    return this.#channel.ask({ kind: "pick", ...question }).catch(() => undefined);
  }
}
