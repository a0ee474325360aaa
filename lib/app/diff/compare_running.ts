import { SERVICE } from "../../api/kinds/service.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { messageOf } from "../../log/message_of.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { BadQuestion } from "../control/control_server.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import { checkService, servicePortsOf } from "../explain/find_service_ports.ts";
import type { IntrospectedParts } from "../control/introspection.ts";
import { type DifferenceAnswer, differenceAnswer } from "./difference_answer.ts";
import {
  compareFamily,
  type CompareOptions,
  type FamilyDifference,
  type NodeDifference,
} from "./node_difference.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";

/** What is compared. */
type ComparedParts = Pick<
  IntrospectedParts,
  "families" | "configuration" | "startUp" | "informers"
>;

/** So often the machine is looked at while syncs change it. */
const MAX_LOOKS = 3;
/** How often it is asked whether a sync has ended, and for how long. */
const SYNC_POLL_MS = 20;
const MOST_SYNC_POLLS = 250;

/**
 * Answers `/difference`, one question at a time: each holds all that the kernel has in memory.
 * `family=IPv4` and `service=NAMESPACE/NAME` leave the others out.
 */
export class RunningComparison {
  readonly #clock: Pick<Clock, "sleep">;
  readonly #parts: ComparedParts;
  #last: Promise<unknown> = Promise.resolve();

  constructor({ clock }: { readonly clock: Pick<Clock, "sleep"> }, parts: ComparedParts) {
    this.#clock = clock;
    this.#parts = parts;
  }

  /**
   * Rejects with a BadQuestion where a word of the question is wrong. When its turn comes and `signal`
   * says that nobody waits for it any more, nothing is compared.
   */
  answer(query: URLSearchParams, signal?: AbortSignal): Promise<DifferenceAnswer> {
    const answer = this.#last.then(async () => {
      signal?.throwIfAborted();
      return differenceAnswer(await this.#compare(query));
    });
    this.#last = answer.catch(() => {});
    return answer;
  }

  async #compare(query: URLSearchParams): Promise<NodeDifference> {
    const { configuration, startUp } = this.#parts;
    const proxies = this.#proxiesOf(query.get("family"));
    const keys = this.#chosen(query.get("service"), proxies);
    const families: FamilyDifference[] = [];
    for (const proxy of proxies) families.push(await this.#compareSettled(proxy, keys));
    return { mode: configuration().mode, nodeName: startUp.node.name, families };
  }

  /** What is under way is no difference: a sync that runs is waited for, and looked behind. */
  async #compareSettled(
    proxy: FamilyProxy,
    keys: CompareOptions["keys"],
  ): Promise<FamilyDifference> {
    const { backend, pipeline, loop } = proxy;
    for (let looks = 1;; looks++) {
      await this.#syncEnded(proxy);
      const { lastSync } = loop;
      // Where this process serves by itself, it alone knows what is open.
      const serving = MODE_TRAITS[backend.mode].forwardsItself &&
        (await backend.inspect()).services;
      const difference = await compareFamily({
        backend,
        plan: pipeline.plan,
        quarantined: loop.quarantined,
        ...(serving && { serving }),
      }, { ...(keys && { keys }) });
      const isSettled = !isSyncing(proxy) && loop.lastSync === lastSync;
      if (isSettled || difference.differences.length === 0 || looks === MAX_LOOKS) {
        return difference;
      }
    }
  }

  async #syncEnded(proxy: FamilyProxy): Promise<void> {
    for (let polls = 0; isSyncing(proxy) && polls < MOST_SYNC_POLLS; polls++) {
      await this.#clock.sleep(SYNC_POLL_MS);
    }
  }

  #proxiesOf(wanted: string | null): readonly FamilyProxy[] {
    if (wanted !== null && !IP_FAMILIES.some((family) => family === wanted)) {
      throw new BadQuestion(
        `Cannot use '${wanted}' for 'family': expected one of ${IP_FAMILIES.join(", ")}`,
      );
    }
    const { families } = this.#parts;
    if (wanted === null) return families;
    const found = families.filter(({ family }) => family === wanted);
    if (found.length > 0) return found;
    const served = families.map(({ family }) => family).join(" and ");
    throw new BadQuestion(`Cannot compare ${wanted}: this kube-relay serves ${served} alone`);
  }

  #chosen(service: string | null, proxies: readonly FamilyProxy[]): CompareOptions["keys"] {
    if (service === null) return undefined;
    const plans = proxies.map(({ pipeline }) => pipeline.plan);
    const all = [...this.#parts.informers().of(SERVICE).values()].map((each) =>
      serviceKey(namespacedNameOf(each))
    );
    try {
      checkService(service, { plans, all: new Set(all) });
    } catch (error) {
      throw new BadQuestion(messageOf(error), { cause: error });
    }
    // Of the plan that is compared: it may be a later one.
    return (plan) => servicePortsOf(plan, service);
  }
}

function isSyncing({ loop }: FamilyProxy): boolean {
  return loop.activity.runningSince !== undefined;
}
