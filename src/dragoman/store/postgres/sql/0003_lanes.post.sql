DROP INDEX dragoman.task_runnable;
