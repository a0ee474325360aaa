/**
 * The program of a worker of mode userspace: of a thread, or of a data process. A program of its own,
 * since a thread that loads all of `main.ts` needs 30 MB instead of 12.
 *
 * @module
 */
import { DATA_PROCESS } from "../lib/os/data_process_protocol.ts";
import { serveAsDataProcess } from "./userspace/workers/data_process.ts";
import { serveAsWorker } from "./userspace/workers/worker_thread.ts";

if (Deno.args[0] === DATA_PROCESS) serveAsDataProcess(Deno.args.slice(1));
else serveAsWorker();
