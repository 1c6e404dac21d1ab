DROP INDEX dragoman.task_list;
