/**
 * The program of a worker thread of mode userspace. A program of its own, since a thread that loads
 * all of `main.ts` needs 30 MB instead of 12.
 *
 * @module
 */
import { serveAsWorker } from "./userspace/workers/worker_thread.ts";

serveAsWorker();
