/** The program of a worker whose network plays the trick in the URL of this file. */
import { serveScope } from "../../../backends/userspace/workers/worker_thread.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { misleadingNetwork } from "./misleading_network.ts";

const trick = new URL(import.meta.url).searchParams.get("trick") ?? "{}";
const scope = globalThis as unknown as Parameters<typeof serveScope>[0];
const network = misleadingNetwork(JSON.parse(trick));
serveScope(scope, { clock: systemClock, network, random: Math.random });
